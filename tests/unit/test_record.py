"""Records: their stored text, the bytes that are hashed, and the chain that seals them."""

from collections.abc import Sequence
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
from leftfold.core.record import (
    FORMAT,
    GENESIS,
    UPCASTERS,
    Record,
    Upcasters,
    canonical,
    check_chain,
    decode,
    encode,
    link,
    seal,
)
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
KNOWN_BYTES: Final = 'job-1 3 1700000000000000 9:succeeded1:15:owner7:wörker3:r-1-{"result":1}'.encode()
KNOWN_HASH: Final = "9c3396ad4b4ae6fd25755f39703696dec2bcf54ccc2014da1b5746cfbaa212a1"

Sealed = list[tuple[tuple[Record, ...], bytes]]


def sealed(records: list[Record]) -> Sealed:
    return entries([(record,) for record in records])


def entries(parted: Sequence[tuple[Record, ...]]) -> Sealed:
    chain, head = [], GENESIS
    for records in parted:
        head = link(head, *records)
        chain.append((records, seal(head)))
    return chain


def head_of(chain: Sealed) -> bytes:
    head = GENESIS
    for records, _ in chain:
        head = link(head, *records)
    return head


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
    format=st.integers(0, 111),
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
        with pytest.raises(CorruptLogError, match=f"there is no event {name!r} of format 1"):
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


#: As if a release had been written differently twice: its due time under another name, and then without a reason.
BY: Final[Upcasters] = {
    ("released", 1): lambda fields: {"due": fields["until"]},
    ("released", 2): lambda fields: {**fields, "reason": "unsaid"},
    ("released", 4): lambda fields: {**fields, "reason": "read too far"},
}


@pytest.mark.parametrize(
    ("stored", "data", "event"),
    [
        (1, '{"until":8}', e.Released(due=8, reason="unsaid")),
        (2, '{"due":8}', e.Released(due=8, reason="unsaid")),
        (3, '{"due":8}', e.Released(due=8)),
        (4, '{"due":8}', e.Released(due=8)),
    ],
)
def test_an_event_of_an_older_format_goes_through_every_format_since(stored: int, data: str, event: e.AnyEvent) -> None:
    assert decode("released", data, stored, current=4, by=BY) == event


@pytest.mark.parametrize(("event", "text"), EVENTS, ids=[event.wire for event, _ in EVENTS])
def test_what_no_upcaster_names_is_the_same_in_every_format(event: e.AnyEvent, text: str) -> None:
    others = {key: upcaster for key, upcaster in BY.items() if key[0] != event.wire}
    assert decode(event.wire, text, stored=1, current=4, by=others) == event


@pytest.mark.parametrize("stored", [-1, 0, 5, 10**30])
def test_a_format_that_there_is_not_is_not_guessed_at(stored: int) -> None:
    with pytest.raises(CorruptLogError, match=f"no event 'released' of format {stored}: was it written by a newer"):
        decode("released", '{"due":8}', stored, current=4, by=BY)


def test_a_format_that_this_version_does_not_know_is_not_guessed_at() -> None:
    assert decode("started", "{}", FORMAT) == e.Started()
    for stored in (0, FORMAT + 1):
        with pytest.raises(CorruptLogError, match=f"of format {stored}"):
            decode("started", "{}", stored)


@pytest.mark.parametrize(
    ("stored", "data"), [(1, '{"until":"late"}'), (1, ""), (2, "{"), (2, '{"due":"\ud800"}'), (2, '{"reason":"none"}')]
)
def test_an_older_text_that_becomes_no_event_is_corrupt(stored: int, data: str) -> None:
    with pytest.raises(CorruptLogError, match="the stored 'released' event cannot be read"):
        decode("released", data, stored, current=4, by=BY)


def test_reading_an_older_record_changes_nothing_that_is_sealed() -> None:
    stored, data = 1, '{"until":8}'
    event = decode("released", data, stored, current=4, by=BY)
    record = replace(KNOWN, event=event, data=data, format=stored)
    assert encode(event) != data
    assert canonical(record) == KNOWN_BYTES.replace(b"9:succeeded", b"8:released").replace(b'"result":1', b'"until":8')
    assert check_chain(sealed([record])) == link(GENESIS, record) != link(GENESIS, replace(record, format=2))


def test_every_upcaster_leads_from_an_older_format_of_an_event_that_there_is() -> None:
    assert FORMAT == 1
    assert all(wire in e.BY_WIRE and 1 <= older < FORMAT for wire, older in UPCASTERS)


def test_records_are_written_in_the_current_format(chain: Sealed) -> None:
    assert {record.format for records, _ in chain for record in records} == {FORMAT}


def test_a_whole_chain_gives_its_head(chain: Sealed) -> None:
    assert check_chain(chain) == head_of(chain)
    assert check_chain([]) == GENESIS
    assert check_chain(chain[2:], previous=head_of(chain[:2])) == head_of(chain)


def test_a_seal_is_the_beginning_of_a_hash() -> None:
    assert seal(bytes.fromhex(KNOWN_HASH)).hex() == KNOWN_HASH[:16]


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
    "format": 2,
}


@pytest.mark.parametrize("field", EDITS)
@pytest.mark.parametrize("position", range(5))
def test_an_edited_record_breaks_the_chain(chain: Sealed, field: str, position: int) -> None:
    (record,), stored = chain[position]
    chain[position] = ((replace(record, **{field: EDITS[field]}),), stored)
    with pytest.raises(BrokenChainError, match="does not carry the hash of its content"):
        check_chain(chain)


def test_every_field_of_a_record_is_covered() -> None:
    assert set(EDITS) == set(Record.__struct_fields__)


@pytest.mark.parametrize("position", range(4))
def test_a_removed_swapped_or_inserted_record_breaks_the_chain(chain: Sealed, position: int) -> None:
    removed = chain[:position] + chain[position + 1 :]
    swapped = [*chain[:position], chain[position + 1], chain[position], *chain[position + 2 :]]
    foreign = replace(chain[position][0][0], actor="mallory")
    seal_of_it = seal(link(head_of(chain[:position]), foreign))
    inserted = [*chain[:position], ((foreign,), seal_of_it), *chain[position:]]
    resealed = [*chain[:position], ((foreign,), seal_of_it), *chain[position + 1 :]]
    for broken in (removed, swapped, inserted, resealed):
        with pytest.raises(BrokenChainError):
            check_chain(broken)


#: What a claim that starts its job says, in one entry.
CLAIMED: Final = Record(
    job_id="job-1", version=2, at=7, who=Who.WORKER, actor="w", event=e.Claimed(token="t"), data='{"token":"t"}'
)
STARTED: Final = Record(job_id="job-1", version=3, at=7, who=Who.OWNER, actor="w", event=e.Started(), data="{}")


def test_two_records_of_one_entry_have_one_hash() -> None:
    told = b'job-1 3 7 7:claimed1:16:worker1:w--7:started1:15:owner1:w--{"token":"t"}'
    assert canonical(CLAIMED, STARTED) == told
    assert link(GENESIS, CLAIMED, STARTED) == sha256(GENESIS + told).digest()
    assert check_chain(entries([(CLAIMED, STARTED)])) == link(GENESIS, CLAIMED, STARTED)


def test_an_entry_of_two_is_another_one_than_two_entries() -> None:
    apart: list[tuple[Record, ...]] = [(CLAIMED,), (STARTED,)]
    together: list[tuple[Record, ...]] = [(CLAIMED, STARTED)]
    assert head_of(entries(apart)) != head_of(entries(together))
    for one, other in ((apart, together), (together, apart)):
        seals = [stored for _, stored in entries(one)]
        with pytest.raises(BrokenChainError, match="record 2 of job job-1"):
            check_chain(list(zip(other, seals, strict=False)))


@pytest.mark.parametrize("field", sorted({*EDITS} - {"data", "version", "at", "job_id"}))
def test_an_edited_record_of_an_entry_of_two_breaks_the_chain(field: str) -> None:
    ((_, stored),) = entries([(CLAIMED, STARTED)])
    for records in (
        (replace(CLAIMED, **{field: EDITS[field]}), STARTED),
        (CLAIMED, replace(STARTED, **{field: EDITS[field]})),
    ):
        with pytest.raises(BrokenChainError):
            check_chain([(records, stored)])


def test_a_log_that_was_cut_short_has_another_head(chain: Sealed) -> None:
    assert check_chain(chain[:-1]) != head_of(chain)
