"""The lifecycle as a drawing: a standalone SVG, laid out by phase from left to right.

The places and the bends below are the only things chosen by hand; what is drawn comes from the table. A move
that leads out of every live state is drawn once, out of the frame around them.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from leftfold.core import events as e
from leftfold.core.lifecycle import EDGES, ENDED, FINAL, LEASED, SHAPE, TABLE, State

WIDTH, HEIGHT = 1280, 810
BOX = (132, 46)
NEW: Final = "(new)"

Point = tuple[float, float]


class Curve(NamedTuple):
    """How an arrow runs: by two control points, or else bent to its left by some pixels; and where its label sits."""

    bend: int = 0
    via: tuple[Point, Point] | None = None
    label_at: float = 0.5


# fmt: off
PLACES: Final[Mapping[str, tuple[int, int]]] = {
    NEW:                       (60, 360),
    State.INBOX.value:         (190, 180),
    State.QUEUED.value:        (330, 360),
    State.RETRYING.value:      (330, 590),
    State.CLAIMED.value:       (600, 360),
    State.RUNNING.value:       (860, 360),
    State.WAITING.value:       (470, 140),
    State.PARKED.value:        (760, 140),
    State.STALLED.value:       (660, 590),
    State.CANCELLED.value:     (1150, 180),
    State.SUCCEEDED.value:     (1150, 360),
    State.FAILED.value:        (1150, 500),
    State.DEAD_LETTERED.value: (1150, 640),
}
FRAME: Final = (105, 85, 860, 600)  # x, y, width, height: around the live states

#: Arrows that straight lines would hide.
CURVES: Final[Mapping[tuple[str, str], Curve]] = {
    ("queued", "waiting"):       Curve(24, label_at=0.62),
    ("waiting", "queued"):       Curve(24, label_at=0.3),
    ("claimed", "queued"):       Curve(30),
    ("running", "queued"):       Curve(via=((800, 215), (440, 215))),
    ("running", "waiting"):      Curve(via=((840, 260), (640, 180)), label_at=0.38),
    ("parked", "queued"):        Curve(via=((640, 190), (440, 230)), label_at=0.42),
    ("running", "parked"):       Curve(0, label_at=0.62),
    ("retrying", "queued"):      Curve(26),
    ("claimed", "retrying"):     Curve(-8, label_at=0.24),
    ("retrying", "claimed"):     Curve(-38, label_at=0.36),
    ("running", "retrying"):     Curve(via=((850, 700), (560, 700)), label_at=0.62),
    ("stalled", "claimed"):      Curve(22, label_at=0.62),
    ("claimed", "stalled"):      Curve(22, label_at=0.62),
    ("running", "stalled"):      Curve(-12, label_at=0.4),
    ("stalled", "queued"):       Curve(6, label_at=0.28),
    ("claimed", "failed"):       Curve(via=((760, 470), (960, 500)), label_at=0.66),
    ("running", "failed"):       Curve(12, label_at=0.56),
    ("stalled", "failed"):       Curve(-8, label_at=0.66),
}
#: Arrows that run around everything: where their label sits, then corner by corner from box to box.
ROUTES: Final[Mapping[tuple[str, str], tuple[Point, ...]]] = {
    ("failed", "queued"):        ((1238, 570), (1218, 500), (1240, 500), (1240, 722), (84, 722), (84, 382), (261, 372)),
    ("dead_lettered", "queued"): ((600, 722), (1150, 665), (1150, 722), (84, 722), (84, 382), (261, 372)),
}
# fmt: on


class Node(NamedTuple):
    """A state on the drawing: whose place it has, how it looks (a CSS class), and what it is called."""

    place: str
    look: str
    text: str


class Arrow(NamedTuple):
    """A move on the drawing, from place to place."""

    source: str
    target: str
    label: str
    look: str = "move"


def svg() -> str:
    """Draw the lifecycle."""
    nodes = [Node(state.value, look(state), state.value) for state in State]
    live = {state for state in State if state not in ENDED}
    common = {event for event in e.TRANSITIONS if {edge.source for edge in EDGES if edge.event is event} == live}
    letters = {rule.event: rule.label for rule in TABLE}
    labels = {edge: f"{letters[edge.event]} {edge.event.wire}" for edge in EDGES}
    arrows = [
        Arrow(edge.source.value if edge.source else NEW, edge.target.value, labels[edge])
        for edge in EDGES
        if edge.event not in common
    ]
    framed = {edge.target.value: labels[edge] for edge in EDGES if edge.event in common}
    return draw("The life of a Leftfold job", nodes, arrows, framed)


def draw(title: str, nodes: Sequence[Node], arrows: Sequence[Arrow], framed: Mapping[str, str]) -> str:
    """Give a standalone SVG of these states and moves; `framed` are moves out of every live state, by target."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="13">',
        f"<title>{escape(title)}</title>",
        _STYLE,
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="40" y="52">{escape(title)}</text>',
    ]
    if framed:
        x, y, width, height = FRAME
        caption = f"live: every state but the last {len(ENDED)}"
        parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="18"/>')
        parts.append(f'<text class="caption" x="{x + 18}" y="{y + height - 16}">{caption}</text>')
    parts += [_frame_arrow(target, label) for target, label in framed.items()]
    parts += [_arrow(arrow) for arrow in arrows]
    parts += [_node(node) for node in nodes]
    if any(arrow.source == NEW for arrow in arrows):
        parts.append(f'<circle class="new" cx="{PLACES[NEW][0]}" cy="{PLACES[NEW][1]}" r="9"/>')
    parts.append(_legend(dashed=any(arrow.look == "ours" for arrow in arrows)))
    return "\n".join([*parts, "</svg>", ""])


def look(state: State) -> str:
    """Give the CSS class of a state."""
    if state in FINAL:
        return "final"
    if state in ENDED:
        return "closed"
    return "owned" if state in LEASED else "blocked" if SHAPE[state].wait else "live"


def _node(node: Node) -> str:
    x, y = PLACES[node.place]
    # A final state wears a second line, like the double circle of an automaton.
    inner = _box(x, y, 5, "inner") if node.look == "final" else ""
    return f'{_box(x, y, 0, node.look)}{inner}<text class="state" x="{x}" y="{y + 5}">{escape(node.text)}</text>'


def _box(x: int, y: int, inset: int, css: str) -> str:
    width, height = BOX[0] - 2 * inset, BOX[1] - 2 * inset
    return (
        f'<rect class="{css}" x="{x - width // 2}" y="{y - height // 2}" '
        f'width="{width}" height="{height}" rx="{10 - inset // 2}"/>'
    )


def _arrow(arrow: Arrow) -> str:
    start, end = PLACES[arrow.source], PLACES[arrow.target]
    between = (arrow.source, arrow.target)
    if arrow.source == arrow.target:
        return _loop(*start, arrow)
    if between in ROUTES:
        return _route(ROUTES[between], arrow)
    curve = CURVES.get(between, Curve())
    first, second = curve.via or _bent(start, end, curve.bend)
    begin = _edge_of_box(start, first, small=arrow.source == NEW)
    finish = _edge_of_box(end, second)
    path = "M{:.0f},{:.0f} C{:.0f},{:.0f} {:.0f},{:.0f} {:.0f},{:.0f}".format(*begin, *first, *second, *finish)
    label_at = _on_curve(curve.label_at, begin, first, second, finish)
    return f'<path class="{arrow.look}" d="{path}"/>{_label(label_at, arrow)}'


def _bent(start: Point, end: Point, bend: int) -> tuple[Point, Point]:
    """Give control points that lie left of the way, seen along it."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    aside = (4 / 3 * bend * dy / length, -4 / 3 * bend * dx / length)
    return (
        (start[0] + dx / 3 + aside[0], start[1] + dy / 3 + aside[1]),
        (start[0] + 2 * dx / 3 + aside[0], start[1] + 2 * dy / 3 + aside[1]),
    )


def _on_curve(t: float, *points: Point) -> Point:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return (
        sum(weight * point[0] for weight, point in zip(weights, points, strict=True)),
        sum(weight * point[1] for weight, point in zip(weights, points, strict=True)),
    )


def _route(points: tuple[Point, ...], arrow: Arrow) -> str:
    label_at, *corners = points
    path = "M" + " L".join(f"{x:.0f},{y:.0f}" for x, y in corners)
    return f'<path class="{arrow.look} route" d="{path}"/>{_label(label_at, arrow)}'


def _loop(x: int, y: int, arrow: Arrow) -> str:
    left, bottom = x - BOX[0] // 2, y + BOX[1] // 2
    path = f"M{left + 22},{bottom} C{left + 4},{bottom + 44} {left - 46},{bottom + 26} {left - 2},{bottom - 6}"
    return f'<path class="{arrow.look}" d="{path}"/>{_label((left - 14, bottom + 34), arrow)}'


def _frame_arrow(target: str, label: str) -> str:
    x, y = PLACES[target]
    start, end = FRAME[0] + FRAME[2], x - BOX[0] // 2 - 3
    arrow = Arrow("", target, label, "framed")
    return f'<path class="framed" d="M{start},{y} L{end},{y}"/>{_label(((start + end) / 2, y), arrow)}'


def _label(at: Point, arrow: Arrow) -> str:
    lines = arrow.label.split("\n")
    top = at[1] + 4 - 6 * (len(lines) - 1)
    return "".join(
        f'<text class="label" x="{at[0]:.0f}" y="{top + 12 * row:.0f}">{escape(line)}</text>'
        for row, line in enumerate(lines)
    )


def _edge_of_box(center: Point, towards: Point, *, small: bool = False) -> Point:
    """Give where the way from a box's centre to a point leaves the box, or the dot that a job begins as."""
    dx, dy = towards[0] - center[0], towards[1] - center[1]
    width, height = (24, 24) if small else (BOX[0] + 6, BOX[1] + 6)
    scale = min(width / 2 / abs(dx) if dx else math.inf, height / 2 / abs(dy) if dy else math.inf)
    return center[0] + dx * scale, center[1] + dy * scale


_STYLE: Final = """<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1d2733; }
  .paper { fill: #fbfaf7; } .title { font-size: 24px; font-weight: 600; }
  .caption { font-size: 12px; fill: #7b8794; } .state { font-size: 15px; font-weight: 600; text-anchor: middle; }
  .label { font-size: 11px; text-anchor: middle; fill: #33475b; }
  .label { paint-order: stroke; stroke: #fbfaf7; stroke-width: 4px; }
  .frame { fill: none; stroke: #b8c2cc; stroke-dasharray: 7 6; }
  .live { fill: #e3eefb; stroke: #3b76c4; } .owned { fill: #dff3e4; stroke: #2f8f52; }
  .blocked { fill: #fdf1d3; stroke: #c08a1e; } .closed { fill: #fbe3e0; stroke: #bf4536; stroke-dasharray: 5 3; }
  .final { fill: #ecebf5; stroke: #4c4890; } .inner { fill: none; stroke: #4c4890; stroke-width: 1; }
  rect { stroke-width: 1.8; } .new { fill: #1d2733; }
  .move, .framed, .ours { fill: none; stroke: #5a6b7b; stroke-width: 1.4; marker-end: url(#tip); }
  .framed { stroke: #8a97a5; } .route { stroke-linejoin: round; } .ours { stroke-dasharray: 4 4; stroke: #9aa5b1; }
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0,0.8 L9.5,5 L0,9.2 z" fill="#5a6b7b"/></marker></defs>"""

_LEGEND: Final = (
    ("live", "claimable, or to become so", 215),
    ("owned", "one owner, under a lease", 205),
    ("blocked", "waits, holds nothing", 175),
    ("closed", "closed: an operator may reopen it", 250),
    ("final", "final: nothing follows", 185),
)


def _legend(*, dashed: bool) -> str:
    parts, x = [], 40
    for css, text, width in _LEGEND:
        parts.append(f'<rect class="{css}" x="{x}" y="766" width="22" height="14" rx="4"/>')
        parts.append(f'<text class="caption" x="{x + 30}" y="778">{text}</text>')
        x += width
    if dashed:
        parts.append(f'<path class="ours" d="M{x},773 L{x + 34},773"/>')
        parts.append(f'<text class="caption" x="{x + 42}" y="778">a declared extension</text>')
    return "".join(parts)
