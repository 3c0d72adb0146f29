"""Making many jobs that differ in nothing but their payloads, as most batches do: with as few steps for each as can be.

The store is asked for the time, once. Then each entry is made and sealed here, part by part: while a store that takes
more meanwhile writes one, the next is made ready.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from leftfold.core import commands as c
from leftfold.core.payload import check_payloads, to_payload
from leftfold.store.creating import PART, made, mold_of
from leftfold.store.entries import first_data, first_hash
from leftfold.store.query import Operation, Query, Steps
from leftfold.store.replies import Receipt

T = TypeVar("T")
_VARYING: Final = ("id", "hash", "data")
#: Columns that a store asks for only where it makes the entries itself.
_WORKED_OUT: Final = frozenset({"due", "delay", "said"})


def create_alike(
    command: c.Enqueue, make: Callable[[int], list[str]], payloads: Sequence[Any], give: Callable[[Receipt], T]
) -> Operation[list[T]]:
    """Make jobs as the command says, each with an id and a payload of its own. Nothing can stand in their way.

    Whatever is done for each of them is done while the store writes: `make` gives that many ids, and `give` what the
    caller wants of a receipt.
    """
    return Operation(lambda: _enqueue_alike(command, make, payloads, give), blind=True, rings=True)


def _enqueue_alike(
    command: c.Enqueue, make: Callable[[int], list[str]], payloads: Sequence[Any], give: Callable[[Receipt], T]
) -> Steps[list[T]]:
    front, back, columns, actor = mold_of(command)
    words = str(columns["said"])
    ((at,),) = yield Query("clock")
    from_then, front = first_data(at, command.due, command.delay, front)
    common = {name: value for name, value in columns.items() if name not in _WORKED_OUT}
    common |= {"at": at, "from_then": from_then}
    given: list[T] = []
    begin, end = 0, PART // 4  # fewer at first, so that the store has something to do soon
    while begin < len(payloads):
        texts = check_payloads("payload", [to_payload("payload", each) for each in payloads[begin:end]])
        ids = make(len(texts))
        rows = []
        for job_id, text in zip(ids, texts, strict=True):
            data = front + text + back
            rows.append((job_id, first_hash(job_id, at, words, data), data))
        yield Query("enqueue_sealed", {"actor": actor}, _VARYING, rows, common)
        given += [give(made(job_id)) for job_id in ids]
        begin, end = end, end + PART
    return given
