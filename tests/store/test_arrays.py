"""Batches go as array literals of our own making: PostgreSQL must read from them what was written."""

from collections.abc import Sequence

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.store.postgres.wire import array
from leftfold.testing.postgres import Server

#: What PostgreSQL keeps; and more often what means something in a literal.
TEXTS = st.text(st.one_of(st.sampled_from("\"\\{},' N\n"), st.characters(codec="utf-8", exclude_characters="\x00")))


def read(postgres: Server, literal: str, kind: str) -> object:
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
