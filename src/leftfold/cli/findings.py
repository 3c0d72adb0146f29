"""What a look at the logs found, as people and as programs read it: by what can be done about it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import click

from leftfold.cli.shapes import Shape
from leftfold.cli.text import clean, wrapped
from leftfold.store.audit import Finding, What


class Kind(NamedTuple):
    """Findings about which the same is to be done: in a store, and in an export."""

    title: str
    advice: str
    in_file: str


DRIFTED: Final = Kind(
    "drifted: the logs are sound, and rows or counters are not what they come to",
    "`leftfold rebuild ID… --reason TEXT`, or --all, brings them to what the logs say",
    "export the jobs anew: an import refuses them",
)
DOUBLE: Final = Kind(
    "double: more than one live job has a key that only one may have",
    "look at them with `leftfold jobs list --key KEY`, and cancel all but one",
    "",
)
NEWER: Final = Kind(
    "not judged: written by a later version of leftfold",
    "check with that version",
    "check with that version",
)
CORRUPT: Final = Kind(
    "corrupt: logs that nobody can have written so",
    "a log is never repaired: keep what is there and look at it (`leftfold export --job ID`), and restore the job from "
    "a backup",
    "take another copy of the export, or export the jobs anew: an import refuses them",
)
_KINDS: Final = (CORRUPT, DRIFTED, DOUBLE, NEWER)


def kind_of(finding: Finding) -> Kind:
    """Tell what is to be done about a finding."""
    if finding.what is What.KEY:
        return DOUBLE
    if finding.what is What.NEWER:
        return NEWER
    return DRIFTED if finding.mendable else CORRUPT


def shape_of(finding: Finding) -> Shape:
    """Give a finding for programs."""
    return {
        "what": finding.what,
        "job_id": finding.job_id,
        "detail": finding.detail,
        "mendable": finding.mendable,
    }


def lines_of(findings: Iterable[Finding]) -> Iterator[str]:
    """Give a line per finding."""
    shown = list(findings)
    width = max((len(finding.what) for finding in shown), default=0)
    for finding in shown:
        what = click.style(finding.what.value.ljust(width), fg="red")
        job = f"{clean(finding.job_id)}  " if finding.job_id else ""
        yield f"  {what}  {wrapped(job + clean(finding.detail), 4 + width)}"


def grouped(findings: Sequence[Finding]) -> Iterator[str]:
    """Give a line per finding under what is common to them."""
    for kind in _KINDS:
        those = [finding for finding in findings if kind_of(finding) is kind]
        if those:
            yield click.style(kind.title, bold=True)
            yield from lines_of(those)
            yield ""


def advice(findings: Iterable[Finding], *, in_file: bool = False) -> Iterator[str]:
    """Say what to do."""
    found = {kind_of(finding) for finding in findings}
    for kind in _KINDS:
        told = kind.in_file if in_file else kind.advice
        if kind in found and told:
            yield wrapped(f"→ {kind.title.partition(':')[0]}: {told}", 0, more=2)
