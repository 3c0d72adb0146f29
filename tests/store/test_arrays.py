"""Batches go as arrays of our own making, spelled out or packed: PostgreSQL must read from them what was written."""

from collections.abc import Sequence
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.store.postgres.packed import Texts, packed_blobs, packed_ids
from leftfold.store.postgres.wire import array
from leftfold.testing.postgres import Server

#: What PostgreSQL keeps; and more often what means something in a literal.
TEXTS = st.text(st.one_of(st.sampled_from("\"\\{},' N\n"), st.characters(codec="utf-8", exclude_characters="\x00")))


def read(postgres: Server, literal: object, kind: str) -> object:
    with psycopg.connect(postgres.url()) as connection:
        ((found,),) = connection.execute(f"SELECT %s::{kind}[]".encode(), (literal,)).fetchall()
        return found


@settings(deadline=None, max_examples=60)
@given(values=st.lists(st.none() | TEXTS, max_size=6))
def test_texts_come_back_as_they_were(postgres: Server, values: list[str | None]) -> None:
    assert read(postgres, array(values), "text") == values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "text"),
        ([""], "text"),
        (["NULL", "null", None], "text"),
        ([1, -2, None], "integer"),
        ([b"\x00\xff", b""], "bytea"),
        ([bytearray(b"\x00\xff"), bytearray(b"a")], "bytea"),
        (["a"] * 3, "text"),
    ],
)
def test_so_does_everything_else(postgres: Server, values: Sequence[object], kind: str) -> None:
    assert read(postgres, array(values), kind) == list(values)


def test_a_text_that_postgresql_refuses_makes_no_two_of_one(postgres: Server) -> None:
    with pytest.raises(psycopg.DataError):
        read(postgres, array(["a\x00b", "c"]), "text")


@settings(deadline=None, max_examples=60)
@given(values=st.lists(TEXTS, min_size=1, max_size=6))
def test_packed_texts_come_back_as_they_were(postgres: Server, values: list[str]) -> None:
    assert read(postgres, Texts(values), "text") == values


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_so_do_packed_bytes(postgres: Server, values: list[bytes]) -> None:
    assert read(postgres, packed_blobs(values), "bytea") == values


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.uuids(), min_size=1, max_size=6))
def test_so_do_packed_ids(postgres: Server, values: list[UUID]) -> None:
    assert read(postgres, packed_ids([str(value) for value in values]), "uuid") == values


@pytest.mark.parametrize("odd", ["no id", "", str(UUID(int=7)).replace("-", ""), "-" * 36, "x" + str(UUID(int=7))[1:]])
def test_ids_that_are_spelled_otherwise_are_left_to_the_server(odd: str) -> None:
    assert packed_ids([str(UUID(int=7)), odd]) is None
