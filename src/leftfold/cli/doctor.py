"""`leftfold doctor`: look whether a store is healthy, and say what to do."""

import click

from leftfold.cli.checks import Check, Verdict
from leftfold.cli.exits import UNHEALTHY
from leftfold.cli.store import Place, check_place, emit, with_json, with_store
from leftfold.cli.text import clean
from leftfold.opening import address_of, masked

_STYLES = {Verdict.OK: {"fg": "green"}, Verdict.WARN: {"fg": "yellow"}, Verdict.BAD: {"fg": "red"}}


@click.command()
@with_store
@with_json
@click.pass_context
def doctor(context: click.Context, place: Place, *, as_json: bool) -> None:
    """Look whether a store is healthy, and say what to do.

    It changes nothing. Exit code 5 means that something is bad; a warning alone is 0.
    """
    dialect = address_of(place.url).dialect
    checks = _examine(dialect, place)
    healthy = all(check.verdict is not Verdict.BAD for check in checks)
    if as_json:
        findings = [check._asdict() for check in checks]
        emit({"store": masked(place.url), "dialect": dialect, "healthy": healthy, "checks": findings})
    else:
        click.echo("\n".join(_lines(place, checks)))
    context.exit(0 if healthy else UNHEALTHY)


def _examine(dialect: str, place: Place) -> list[Check]:
    if dialect == "sqlite":
        from leftfold.cli.examine_sqlite import examine  # noqa: PLC0415 - one of the two is loaded

        return list(examine(place))
    check_place(place, create=False)  # it also says if psycopg is missing
    from leftfold.cli.examine_postgres import examine as examine_postgres  # noqa: PLC0415 - one of the two is loaded, when needed

    return list(examine_postgres(place))


def _lines(place: Place, checks: list[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = [click.style(masked(place.url), bold=True), ""]
    for check in checks:
        verdict = click.style(check.verdict.ljust(4), **_STYLES[check.verdict])  # type: ignore[arg-type]
        lines.append(f"  {verdict}  {check.name.ljust(width)}  {clean(check.found)}")
        if check.advice:
            lines.append(f"  {'':4}  {'':{width}}  → {clean(check.advice)}")
    return [*lines, "", _sum(checks)]


def _sum(checks: list[Check]) -> str:
    bad, warnings = (sum(check.verdict is kind for check in checks) for kind in (Verdict.BAD, Verdict.WARN))
    if bad:
        return click.style(f"unhealthy: {bad} of {len(checks)} checks are bad", fg="red")
    also = f", with {warnings} warning{'s' * (warnings > 1)}" if warnings else ""
    return click.style(f"healthy{also}", fg="yellow" if warnings else "green")
