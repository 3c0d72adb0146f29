"""Bars, one for each system, that one can read at a glance: as SVG, on a light page or a dark one."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

_LABEL: Final = 210
_WIDTH: Final = 760
_BAR: Final = 22
_GAP: Final = 8
_TOP: Final = 44
_FIGURE: Final = 130  # room for a figure behind a bar

_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 15px }
.ours { fill: #0969da } .limit { fill: #afb8c1 } .peer { fill: #57606a }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #4493f8 } .limit { fill: #484f58 }
.peer { fill: #8b949e } }
"""


class Bar(NamedTuple):
    """One system."""

    label: str
    value: float
    look: str  # "ours", "limit" or "peer"


def bars(title: str, unit: str, given: Sequence[Bar], *, less_is_better: bool = False) -> str:
    """Give a plot, the best on top."""
    order = sorted(given, key=lambda bar: bar.value, reverse=not less_is_better)
    most = max(bar.value for bar in order)
    height = _TOP + len(order) * (_BAR + _GAP) + _GAP
    note = f"{unit}, {'less' if less_is_better else 'more'} is better"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text x="{_WIDTH}" y="18" text-anchor="end">{escape(note)}</text>',
    ]
    for place, bar in enumerate(order):
        y = _TOP + place * (_BAR + _GAP)
        length = max((_WIDTH - _LABEL - _FIGURE) * bar.value / most, 1)
        middle = y + _BAR - 6
        weight = ' font-weight="600"' if bar.look == "ours" else ""
        lines += [
            f'<text x="{_LABEL - 10}" y="{middle}" text-anchor="end"{weight}>{escape(bar.label)}</text>',
            f'<rect class="{bar.look}" x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="3"/>',
            f'<text x="{_LABEL + length + 8:.1f}" y="{middle}"{weight}>{_number(bar.value)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
