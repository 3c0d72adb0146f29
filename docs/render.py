"""Write the rendered parts of the docs: `make docs`. A test fails when they differ from the tables.

A part stands between `<!-- rendered: NAME -->` and `<!-- end -->`; everything else is written by hand.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from leftfold.core import diagram, drawing
from leftfold.core.letters import Reason, Stage
from leftfold.dialects import DIALECTS, describe
from leftfold.dialects.dialect import Dialect

FOLDER = Path(__file__).parent


def mermaid() -> str:
    """Give the diagram as a fenced block."""
    return f"```mermaid\n{diagram.mermaid()}\n```"


def letters() -> str:
    """Give the codes of dead letters."""
    reasons = ", ".join(f"`{reason}`" for reason in Reason)
    return f"Reasons: {reasons}.\n\nStages: {', '.join(f'`{stage}`' for stage in Stage)}."


def dialect_part(dialect: Dialect) -> str:
    """Give what one dialect calls our states, and what it lacks."""
    described = describe.describe(dialect)
    machine = described.get("task", described)
    names = diagram.markdown(
        (
            ["ours", *machine["names"]],
            [
                [
                    "here",
                    *(
                        f"{name} †" if state in machine["stand_ins"] else name
                        for state, name in machine["names"].items()
                    ),
                ]
            ],
        )
    )
    rows: dict[tuple[str, ...], None] = {}
    for each in describe.extensions(dialect):
        move = f"{each['from']} → {each['to']}"
        rows[move, each["event"] or "*(silent)*", each["canonical"]["event"], each["basis"], each["reason"]] = None
    head = ["move", "event", "ours", "basis", "reason"]
    return f"{names}\n\n† a stand-in\n\n{diagram.markdown((head, [list(row) for row in rows]))}"


PARTS: Mapping[str, Callable[[], str]] = {
    "shape": lambda: diagram.markdown(diagram.shapes()),
    "rules": lambda: diagram.markdown(diagram.rules()),
    "matrix": lambda: diagram.markdown(diagram.matrix()),
    "mermaid": mermaid,
    "letters": letters,
    **{f"dialect {name}": (lambda each=each: dialect_part(each)) for name, each in DIALECTS.items()},
}

_PART = re.compile(r"(<!-- rendered: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str) -> str:
    """Give a page with its parts rendered anew."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part['name']]()}\n\n{part[3]}", text)


def pages() -> dict[Path, str]:
    """Give every file that has rendered parts, as it should be."""
    found = {page: rendered(page.read_text(encoding="utf-8")) for page in sorted(FOLDER.glob("*.md"))}
    return {**found, FOLDER / "lifecycle.svg": drawing.svg()}


if __name__ == "__main__":
    for file, content in pages().items():
        file.write_text(content, encoding="utf-8")
