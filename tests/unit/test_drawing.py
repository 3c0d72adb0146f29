"""The drawing: an SVG that is valid, complete and marks what is final."""

from xml.etree import ElementTree as ET

import pytest

from leftfold.core import drawing
from leftfold.core import events as e
from leftfold.core.drawing import PLACES, Arrow, Node, draw, look, svg
from leftfold.core.lifecycle import EDGES, ENDED, FINAL, State

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text


def texts(root: ET.Element, css: str) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text") if node.get("class") == css]


def count(root: ET.Element, tag: str, css: str) -> int:
    return sum(css in (node.get("class") or "").split() for node in root.iter(f"{SVG}{tag}"))


def test_the_drawing_is_a_titled_svg() -> None:
    root = parsed(svg())
    assert root.tag == f"{SVG}svg"
    assert (root.get("viewBox"), root.get("role")) == ("0 0 1280 810", "img")
    assert root.findtext(f"{SVG}title") == texts(root, "title")[0] == "The life of a Leftfold job"


def test_every_state_and_every_event_is_named() -> None:
    root = parsed(svg())
    assert sorted(texts(root, "state")) == sorted(state.value for state in State)
    assert {label.split()[1] for label in texts(root, "label")} == {event.wire for event in e.TRANSITIONS}


def test_every_edge_is_an_arrow_and_the_common_ones_leave_the_frame() -> None:
    root = parsed(svg())
    common = {e.DeadLettered, e.Cancelled}
    assert count(root, "path", "move") == sum(edge.event not in common for edge in EDGES)
    assert count(root, "path", "framed") == 2
    assert count(root, "rect", "frame") == count(root, "circle", "new") == 1
    assert count(root, "path", "route") == 2
    assert "live: every state but the last 4" in texts(root, "caption")


def test_final_states_wear_a_second_line() -> None:
    root = parsed(svg())
    assert count(root, "rect", "inner") == len(FINAL)
    assert count(root, "rect", "final") == len(FINAL) + 1  # and the legend
    assert count(root, "rect", "closed") == len(ENDED - FINAL) + 1
    finals = [node for node in root.iter(f"{SVG}rect") if node.get("class") == "final" and node.get("width") == "132"]
    places = {(int(node.get("x", "")) + 66, int(node.get("y", "")) + 23) for node in finals}
    assert places == {PLACES[state.value] for state in FINAL}


@pytest.mark.parametrize(
    ("css", "states"),
    [
        ("live", "inbox queued retrying stalled"),
        ("owned", "claimed running"),
        ("blocked", "waiting parked"),
        ("final", "succeeded cancelled"),
        ("closed", "failed dead_lettered"),
    ],
)
def test_a_state_looks_like_what_it_is(css: str, states: str) -> None:
    assert [state.value for state in State if look(state) == css] == states.split()
    assert css in {row[0] for row in drawing._LEGEND}


def test_every_state_has_a_place_of_its_own_inside_the_drawing() -> None:
    assert set(PLACES) == {"(new)", *(state.value for state in State)}
    assert len(set(PLACES.values())) == len(PLACES)
    assert all(0 < x < drawing.WIDTH and 0 < y < drawing.HEIGHT for x, y in PLACES.values())
    moves = {(edge.source.value if edge.source else "(new)", edge.target.value) for edge in EDGES}
    assert set(drawing.CURVES) | set(drawing.ROUTES) <= moves


def test_another_drawing_has_only_what_it_is_given() -> None:
    nodes = [Node("queued", "live", "Ready & <set>"), Node("running", "final", "Done")]
    arrows = [Arrow("queued", "running", "one\ntwo", "ours"), Arrow("queued", "queued", "again")]
    root = parsed(draw("A & B", nodes, arrows, {}))
    assert texts(root, "title") == ["A & B"]
    assert texts(root, "state") == ["Ready & <set>", "Done"]
    assert texts(root, "label") == ["one", "two", "again"]
    assert count(root, "rect", "frame") == count(root, "circle", "new") == 0
    assert count(root, "path", "ours") == 2  # the arrow and the legend
    assert "a declared extension" in texts(root, "caption")
    assert "a declared extension" not in texts(parsed(svg()), "caption")


def test_an_arrow_begins_and_ends_outside_of_its_boxes() -> None:
    root = parsed(draw("One", [], [Arrow("claimed", "running", "D")], {}))
    (path,) = (node for node in root.iter(f"{SVG}path") if node.get("class") == "move")
    assert path.get("d") == "M669,360 C687,360 773,360 791,360"  # 600 + 66 + 3 to 860 - 66 - 3, through the thirds
    upright = parsed(draw("One", [], [Arrow("failed", "dead_lettered", "x")], {}))
    (path,) = (node for node in upright.iter(f"{SVG}path") if node.get("class") == "move")
    assert path.get("d") == "M1150,526 C1150,547 1150,593 1150,614"
