"""What a connection of the caller's must be so that an operation may run within its transaction."""

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from leftfold.core.errors import ValidationError

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

#: Which database this is, whatever it is called and through however many proxies one came.
IDENTITY: Final = "SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database()"


def check_transaction(connection: AnyConnection) -> None:
    """Refuse a connection that would commit what we write at once, or would not tell us what became of it."""
    if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise ValidationError("this connection commits by itself: begin a transaction first")
    if connection.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF:
        raise ValidationError("this connection is in pipeline mode, where no statement is answered: leave it first")


def place_of(info: psycopg.ConnectionInfo) -> tuple[str, int, str]:
    """Give where a connection goes, as far as its own side knows."""
    return info.host, info.port, info.dbname


def check_same(theirs: Sequence[object], ours: Sequence[object]) -> None:
    """Refuse a connection to another database: what we write would be there, and nobody would find it."""
    if theirs != ours:
        raise ValidationError("within takes a connection to the very database of this store")
