"""The `leftfold` command: one file per group of verbs.

Data goes to standard output and nothing else does; progress and problems go to standard error. Exit codes:
0 fine, 1 a check failed, 2 the command line is wrong.
"""

import sys

import click

from leftfold.cli.demo import demo
from leftfold.cli.lifecycle import lifecycle
from leftfold.core.errors import LeftfoldError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="leftfold")
def cli() -> None:
    """Leftfold, a durable job engine: a job's state is the left fold of its events."""


cli.add_command(demo)
cli.add_command(lifecycle)


def main() -> None:
    """Run the command line; an error of ours is one line, not a traceback."""
    try:
        cli()
    except LeftfoldError as error:
        click.echo(f"leftfold: {error.code}: {error}", err=True)
        sys.exit(1)
