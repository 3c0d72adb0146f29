"""Records: their stored text, the bytes that are hashed, and the chain that seals them."""

from hashlib import sha256
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.samples import EVENTS
from tests.unit.scene import CLIENT, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import BrokenChainError, CorruptLogError
from leftfold.core.lifecycle import State, Who
from leftfold.core.record import GENESIS, Record, canonical, check_chain, decode, encode, link
from leftfold.core.values import Wait, WaitFor

KNOWN: Final = Record(
    job_id="job-1",
    version=3,
    at=1_700_000_000_000_000,
    who=Who.OWNER,
    actor="wörker",
    event=e.Succeeded(result=Raw(b"1")),
    data='{"result":1}',
    request_id="r-1",
    request_hash=None,
)
#: Spelled out, and the hash computed with sha256sum: a change of either breaks every log there is.
KNOWN_FIELDS: Final = "5:job-1 1:3 16:1700000000000000 9:succeeded 5:owner 7:wörker 3:r-1 -"
KNOWN_BYTES: Final = (KNOWN_FIELDS.replace(" ", "") + '12:{"result":1}').encode()
KNOWN_HASH: Final = "f8b2c4484382383c028a91b8313789a36759fb56723969703c40654fad787d5b"

Sealed = list[tuple[Record, bytes]]


def sealed(records: list[Record]) -> Sealed:
    chain, head = [], GENESIS
    for record in records:
        head = link(head, record)
        chain.append((record, head))
    return chain


@pytest.fixture
def chain() -> Sealed:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Note(by=CLIENT, note=e.Custom(name="seen")))
    scene.do(c.Complete(by=scene.owner))
    return sealed(scene.log)


def test_the_bytes_and_the_hash_of_a_known_record_never_change() -> None:
    assert canonical(KNOWN) == KNOWN_BYTES
    assert link(GENESIS, KNOWN).hex() == KNOWN_HASH
    assert bytes(32) == GENESIS
    assert KNOWN.id == "job-1:3"


def test_a_link_covers_what_came_before() -> None:
    before = sha256(b"before").digest()
    assert link(before, KNOWN) == sha256(before + KNOWN_BYTES).digest() != link(GENESIS, KNOWN)


tricky = st.text("01:-", max_size=4)
records = st.builds(
    Record,
    job_id=tricky,
    version=st.integers(0, 111),
    at=st.integers(0, 111),
    who=st.sampled_from(Who),
    actor=tricky,
    event=st.sampled_from([e.Started(), e.Succeeded()]),
    data=tricky,
    request_id=st.none() | tricky,
    request_hash=st.none() | tricky,
)


@given(records, records)
def test_two_records_share_their_bytes_only_if_they_are_equal(one: Record, other: Record) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)


@given(records, st.data())
def test_text_that_moves_to_the_next_field_changes_the_bytes(record: Record, data: st.DataObject) -> None:
    text = data.draw(st.text("01:-", min_size=2, max_size=6))
    cut, other = data.draw(st.permutations(range(len(text) + 1)))[:2]
    splits = [replace(record, request_id=text[:at], request_hash=text[at:]) for at in (cut, other)]
    assert canonical(splits[0]) != canonical(splits[1])


@pytest.mark.parametrize(("event", "text"), EVENTS, ids=[event.wire for event, _ in EVENTS])
def test_the_stored_text_of_an_event_is_its_format_and_reads_back(event: e.AnyEvent, text: str) -> None:
    assert encode(event) == text
    assert decode(event.wire, text) == event


def test_every_event_has_a_sample() -> None:
    assert [event.wire for event, _ in EVENTS] == list(e.BY_WIRE)


def test_what_an_event_leaves_out_means_its_default() -> None:
    assert encode(e.Succeeded()) == encode(e.Started()) == encode(e.CancelRequested()) == "{}"
    assert decode("succeeded", "{}") == e.Succeeded(result=Raw(b"null"))
    assert decode("enqueued", '{"due":1}') == e.Enqueued(due=1)


def test_a_field_of_a_newer_version_is_passed_over() -> None:
    assert decode("started", '{"by_whom":"ann"}') == e.Started()


def test_an_event_of_another_name_is_not_guessed_at() -> None:
    for name in ("renewed", "Started", ""):
        with pytest.raises(CorruptLogError, match="there is no event called"):
            decode(name, "{}")


@pytest.mark.parametrize(
    ("wire", "data"),
    [
        ("started", ""),
        ("started", "{"),
        ("started", "[]"),
        ("claimed", "{}"),
        ("claimed", '{"owner":"w","token":"t","lease":"long"}'),
        ("cancelled", '{"mode":"gentle"}'),
        ("requeued", '{"due":1.5}'),
        ("released", '{"due":1,"reason":"\ud800"}'),
    ],
)
def test_a_stored_text_that_is_no_such_event_is_corrupt(wire: str, data: str) -> None:
    with pytest.raises(CorruptLogError, match=f"the stored '{wire}' event cannot be read"):
        decode(wire, data)


def test_a_whole_chain_gives_its_head(chain: Sealed) -> None:
    assert check_chain(chain) == chain[-1][1]
    assert check_chain([]) == GENESIS
    assert check_chain(chain[2:], previous=chain[1][1]) == chain[-1][1]


EDITS: Final[dict[str, object]] = {
    "job_id": "job-2",
    "version": 9,
    "at": 1,
    "who": Who.OPERATOR,
    "actor": "mallory",
    "event": e.Parked(wait=Wait(until=WaitFor.SIGNAL, key="k")),
    "data": '{"result":2}',
    "request_id": "r-9",
    "request_hash": "0",
}


@pytest.mark.parametrize("field", EDITS)
@pytest.mark.parametrize("position", range(5))
def test_an_edited_record_breaks_the_chain(chain: Sealed, field: str, position: int) -> None:
    record, stored = chain[position]
    chain[position] = (replace(record, **{field: EDITS[field]}), stored)
    with pytest.raises(BrokenChainError, match="does not carry the hash of its content"):
        check_chain(chain)


def test_every_field_of_a_record_is_covered() -> None:
    assert set(EDITS) == set(Record.__struct_fields__)


@pytest.mark.parametrize("position", range(4))
def test_a_removed_swapped_or_inserted_record_breaks_the_chain(chain: Sealed, position: int) -> None:
    removed = chain[:position] + chain[position + 1 :]
    swapped = [*chain[:position], chain[position + 1], chain[position], *chain[position + 2 :]]
    foreign = replace(chain[position][0], actor="mallory")
    before = chain[position - 1][1] if position else GENESIS
    inserted = [*chain[:position], (foreign, link(before, foreign)), *chain[position:]]
    resealed = [*chain[:position], (foreign, link(before, foreign)), *chain[position + 1 :]]
    for broken in (removed, swapped, inserted, resealed):
        with pytest.raises(BrokenChainError):
            check_chain(broken)


def test_a_log_that_was_cut_short_has_another_head(chain: Sealed) -> None:
    assert check_chain(chain[:-1]) != chain[-1][1]
