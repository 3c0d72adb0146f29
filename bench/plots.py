"""Bars, one for each system, that one can read at a glance: as SVG, on a light page or a dark one.

Systems stand in groups by what they keep jobs in, each with a heading; a thin line reaches from the worst round to the
best one. Colours say whose a bar is, and a legend says what they mean.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

_LABEL: Final = 210
_WIDTH: Final = 760
_BAR: Final = 22
_GAP: Final = 8
_TOP: Final = 62
_HEADING: Final = 24
_FIGURE: Final = 130  # room for a figure behind a bar

_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 15px }
.group { font-style: italic; fill: #57606a } .ours { fill: #0969da } .limit { fill: #afb8c1 } .peer { fill: #57606a }
.weak { fill: #57606a; fill-opacity: 0.45 } .rounds { stroke: #cf6a00; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .group { fill: #8b949e } .ours { fill: #4493f8 }
.limit { fill: #484f58 } .peer { fill: #8b949e } .weak { fill: #8b949e } .rounds { stroke: #f0a04b } }
"""
LOOKS: Final = {
    "ours": "Leftfold",
    "peer": "peer",
    "weak": "peer that may lose jobs in a crash",
    "limit": "bare SQL or a bare queue",
}


class Bar(NamedTuple):
    """One system."""

    label: str
    value: float
    look: str  # one of `LOOKS`
    group: str = ""
    rounds: tuple[float, ...] = ()


def bars(title: str, unit: str, given: Sequence[Bar], *, less_is_better: bool = False) -> str:
    """Give a plot, the best on top of each group; the groups come in the order in which they are given."""
    most = max(max(bar.value, *bar.rounds, 0) for bar in given)
    note = f"{unit}, {'less' if less_is_better else 'more'} is better"
    lines, y = [], _TOP
    for group, members in groupby(given, key=lambda bar: bar.group):
        if group:
            lines.append(f'<text class="group" x="0" y="{y + 14}">{escape(group)}</text>')
            y += _HEADING
        for bar in sorted(members, key=lambda bar: bar.value, reverse=not less_is_better):
            lines += _bar(bar, y, (_WIDTH - _LABEL - _FIGURE) / most)
            y += _BAR + _GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + _GAP}" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text x="{_WIDTH}" y="18" text-anchor="end">{escape(note)}</text>',
        *_legend([look for look in LOOKS if any(bar.look == look for bar in given)], any(b.rounds for b in given)),
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


def _bar(bar: Bar, y: float, scale: float) -> list[str]:
    length = max(bar.value * scale, 1)
    middle, end = y + _BAR - 6, _LABEL + scale * max(bar.value, *bar.rounds, 0)
    weight = ' font-weight="600"' if bar.look == "ours" else ""
    lines = [
        f'<text x="{_LABEL - 10}" y="{middle}" text-anchor="end"{weight}>{escape(bar.label)}</text>',
        f'<rect class="{bar.look}" x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="3"/>',
        f'<text x="{end + 8:.1f}" y="{middle}"{weight}>{_number(bar.value)}</text>',
    ]
    if len(bar.rounds) > 1:
        first, last = (_LABEL + scale * value for value in (min(bar.rounds), max(bar.rounds)))
        at = y + _BAR / 2
        lines.append(f'<line class="rounds" x1="{first:.1f}" y1="{at}" x2="{last:.1f}" y2="{at}"/>')
    return lines


def _legend(looks: Sequence[str], has_rounds: bool) -> list[str]:
    lines, x = [], 6
    for look in looks:
        lines.append(f'<circle class="{look}" cx="{x}" cy="38" r="6"/>')
        lines.append(f'<text x="{x + 11}" y="42">{LOOKS[look]}</text>')
        x += 36 + 7 * len(LOOKS[look])
    if has_rounds:
        lines.append(f'<line class="rounds" x1="{x - 6}" y1="38" x2="{x + 12}" y2="38"/>')
        lines.append(f'<text x="{x + 18}" y="42">the rounds</text>')
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"
