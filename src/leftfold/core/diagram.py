"""The lifecycle, rendered: JSON for programs, a Mermaid diagram and Markdown tables for readers.

Nothing here is drawn by hand, so nothing can drift; the docs are compared with these functions by a test.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from leftfold.core import events as e
from leftfold.core.lifecycle import ENDED, FINAL, MEANING, SHAPE, TABLE, Rule, Shape, State, rule_for

NEW: Final = "(new)"
LEGAL, ILLEGAL = "●", "·"


def describe() -> dict[str, Any]:
    """Give the two tables as plain data."""
    return {
        "states": [state.value for state in State],
        "transitions": [_transition(rule) for rule in TABLE],
        "notes": [note.wire for note in e.NOTES],
        "shape": {
            state.value: {
                field: "required" if required else "forbidden"
                for field, required in zip(Shape._fields, shape, strict=True)
            }
            for state, shape in SHAPE.items()
        },
        "final": sorted(state.value for state in FINAL),
        "closed": sorted(state.value for state in ENDED - FINAL),
    }


def mermaid(edges: Iterable[tuple[str, str, str]] | None = None, ends: Iterable[str] | None = None) -> str:
    """Give a Mermaid state diagram, of the lifecycle or of the (source, label, target) edges given."""
    if edges is None:
        edges = [
            (source.value if source else "[*]", f"{rule.label} {rule.event.wire}", rule.target.value)
            for rule in TABLE
            for source in rule.sources
        ]
    if ends is None:
        ends = [state.value for state in State if state in FINAL]
    lines = ["stateDiagram-v2"]
    lines += [
        f"  {source} --> {target}: {label}" if label else f"  {source} --> {target}" for source, label, target in edges
    ]
    lines += [f"  {end} --> [*]" for end in ends]
    return "\n".join(lines)


def matrix() -> tuple[list[str], list[list[str]]]:
    """Give the (event × state) matrix as a head and rows: where each event may happen, and where it leads."""
    sources: Sequence[State | None] = [None, *State]
    head = ["", "event", *(source.value if source else NEW for source in sources), "leads to"]
    rows = []
    for event in e.TRANSITIONS:
        rules = [rule_for(source, event) for source in sources]
        rule = next(rule for rule in rules if rule)
        rows.append([rule.label, event.wire, *(LEGAL if legal else ILLEGAL for legal in rules), rule.target.value])
    return head, rows


def shapes() -> tuple[list[str], list[list[str]]]:
    """Give the shape table as a head and rows."""
    head = ["state", *Shape._fields, "meaning"]
    rows = [
        [state.value, *(LEGAL if required else ILLEGAL for required in SHAPE[state]), MEANING[state]] for state in State
    ]
    return head, rows


def rules() -> tuple[list[str], list[list[str]]]:
    """Give the transition table as a head and rows."""
    head = ["", "event", "from", "to", "who", "effect"]
    rows = [
        [
            rule.label,
            rule.event.wire,
            ", ".join(source.value if source else NEW for source in rule.sources),
            rule.target.value,
            ", ".join(rule.who),
            rule.effect,
        ]
        for rule in TABLE
    ]
    return head, rows


def markdown(table: tuple[list[str], list[list[str]]]) -> str:
    """Give a head and rows as a Markdown table."""
    head, rows = table
    lines = [head, ["---" for _ in head], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _transition(rule: Rule) -> dict[str, Any]:
    return {
        "label": rule.label,
        "event": rule.event.wire,
        "from": [source.value if source else None for source in rule.sources],
        "to": rule.target.value,
        "who": [who.value for who in rule.who],
        "effect": rule.effect,
    }
