"""The `leftfold` command: one file per group of verbs.

Data goes to standard output and nothing else does; progress and problems go to standard error. Exit codes:
0 fine, 1 a check failed, 2 the command line is wrong.
"""

import io
import os
import sys

import click

from leftfold.cli.demo import demo
from leftfold.cli.lifecycle import lifecycle
from leftfold.core.errors import LeftfoldError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="leftfold")
@click.pass_context
def cli(context: click.Context) -> None:
    """Leftfold, a durable job engine: a job's state is the left fold of its events."""
    if os.environ.get("NO_COLOR"):
        context.color = False
    elif os.environ.get("FORCE_COLOR"):
        context.color = True


cli.add_command(demo)
cli.add_command(lifecycle)


def main() -> None:
    """Run the command line; a failure that can be foreseen is one line, not a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a glyph shows a question mark
    try:
        cli()
    except LeftfoldError as error:
        click.echo(f"leftfold: {error.code}: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"leftfold: {error.strerror or error}", err=True)
        sys.exit(1)
