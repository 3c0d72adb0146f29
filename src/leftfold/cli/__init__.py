"""The `leftfold` command: one file per group of verbs.

Data goes to standard output and nothing else does; progress and problems go to standard error. What can be foreseen is
one line, `leftfold: code: message`, where the code is that of the error (docs/errors.md), `usage`, or `os`. Exit codes:

0    fine
1    it could not be done, or a check failed
2    the command line or its input is wrong
3    there is no such job
4    refused: a conflict, a key that is taken, a move that the lifecycle does not have
5    `doctor`: the store is unhealthy
6    the store does not let us in
75   for now: the store cannot be reached or is busy, or the outcome is unknown; try again
130  interrupted
"""

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click

from leftfold.cli.exits import FAILURE, INTERRUPTED, USAGE, colour, complain, exit_code
from leftfold.core.errors import LeftfoldError


# Commands are loaded when they are called, so that none pays for the others.
def _enqueue() -> click.Command:
    from leftfold.cli.enqueue import enqueue

    return enqueue


def _jobs() -> click.Command:
    from leftfold.cli.jobs import jobs

    return jobs


def _worker() -> click.Command:
    from leftfold.cli.worker import worker

    return worker


def _workers() -> click.Command:
    from leftfold.cli.worker import workers

    return workers


def _dlq() -> click.Command:
    from leftfold.cli.dlq import dlq

    return dlq


def _queues() -> click.Command:
    from leftfold.cli.queues import queues

    return queues


def _feed() -> click.Command:
    from leftfold.cli.feed import feed

    return feed


def _verify() -> click.Command:
    from leftfold.cli.verify import verify

    return verify


def _rebuild() -> click.Command:
    from leftfold.cli.verify import rebuild

    return rebuild


def _export() -> click.Command:
    from leftfold.cli.export import export_jobs

    return export_jobs


def _import() -> click.Command:
    from leftfold.cli.export import import_jobs

    return import_jobs


def _migrate() -> click.Command:
    from leftfold.cli.migrate import migrate

    return migrate


def _doctor() -> click.Command:
    from leftfold.cli.doctor import doctor

    return doctor


def _demo() -> click.Command:
    from leftfold.cli.demo import demo

    return demo


def _lifecycle() -> click.Command:
    from leftfold.cli.lifecycle import lifecycle

    return lifecycle


class Verb(NamedTuple):
    """A command before it is loaded: where the help shows it, and what it says of it."""

    section: str
    summary: str
    load: Callable[[], click.Command]


VERBS: Final = {
    "demo":      Verb("Begin here", "Watch three workers, of which one is killed, and its jobs.", _demo),
    "enqueue":   Verb("Jobs", "Make a job, and print its id.", _enqueue),
    "jobs":      Verb("Jobs", "List jobs, show one, read its history.", _jobs),
    "dlq":       Verb("Jobs", "List dead letters, show why, try them again.", _dlq),
    "queues":    Verb("Jobs", "List queues, pause and resume them.", _queues),
    "worker":    Verb("Workers", "Run the jobs of an app.", _worker),
    "workers":   Verb("Workers", "List the workers that run.", _workers),
    "feed":      Verb("The log", "Read every event, as one of any number of consumers.", _feed),
    "verify":    Verb("The log", "Derive every job anew from its log, and say what differs.", _verify),
    "rebuild":   Verb("The log", "Bring rows and counters to what the logs say.", _rebuild),
    "export":    Verb("The log", "Write whole jobs with their logs, a line of JSON each.", _export),
    "import":    Verb("The log", "Take in the jobs of an export.", _import),
    "migrate":   Verb("The store", "Make a store, or bring it to the schema of this version.", _migrate),
    "doctor":    Verb("The store", "Look whether a store is healthy, and say what to do.", _doctor),
    "lifecycle": Verb("The lifecycle", "Show states and events in every form; check: the proof.", _lifecycle),
}  # fmt: skip


class Verbs(click.Group):
    """A group of commands that are loaded when they are called, listed by section."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own
        """Load a command."""
        return VERBS[cmd_name].load() if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own
        """Write the sections."""
        width = max(map(len, VERBS))
        for section in dict.fromkeys(verb.section for verb in VERBS.values()):
            with formatter.section(section):
                rows = [(name.ljust(width), verb.summary) for name, verb in VERBS.items() if verb.section == section]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Who interrupts it, or closes the pipe behind it, needs no explanation."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(0)


@click.group(
    cls=Verbs,
    commands=[click.Command(name, short_help=verb.summary) for name, verb in VERBS.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every reading command has --json. Exit codes and settings: docs/cli.md.",
)
@click.version_option(package_name="leftfold")
@click.pass_context
def cli(context: click.Context) -> None:
    """Leftfold, a durable job engine: a job's state is the left fold of its events."""
    context.color = colour()


def main() -> None:
    """Run the command line; a failure that can be foreseen is one line, not a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a glyph shows a question mark
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what it would log, we say ourselves
    sys.exit(_run())


def _run() -> int:
    try:
        return int(cli.main(standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else None
        hint = f" (see {path} --help)" if path else ""
        complain("usage" if path else "os", f"{error.format_message().rstrip('.')}{hint}")
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except LeftfoldError as error:
        complain(error.code, str(error))
        return exit_code(type(error))
    except OSError as error:
        _drop_output()
        complain("os", error.strerror or str(error))
        return FAILURE


def _drop_output() -> None:
    """Let what is still to be written go nowhere: there is nobody to write it to."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
