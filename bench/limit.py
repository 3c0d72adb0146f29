"""The limit: our tables and rows, written by hand with our driver. A loop, and nothing that makes it a queue."""

import asyncio
import inspect
from collections.abc import Iterable
from typing import Final

from bench.bare import Bare
from bench.system import Handler, Promises

#: As many as our worker claims at once.
BATCH: Final = 500
_IDLE: Final = 0.005

PROMISES: Final = Promises(
    durability="committed before it returns",
    history="rows like ours, without a chain",
    recovery="none: it is a limit, not a queue",
)


def enqueue(bare: Bare, numbers: Iterable[int]) -> None:
    for number in numbers:
        bare.enqueue([{"number": number}])


def enqueue_many(bare: Bare, batches: Iterable[list[int]]) -> None:
    for batch in batches:
        bare.enqueue([{"number": number} for number in batch])


async def work(bare: Bare, handler: Handler) -> None:
    """Take a batch, run it, end it, and so on: one statement for all of them each time."""
    while True:
        claims = bare.take(BATCH)
        for claim in claims:
            given = handler(claim[-1]["spec"]["payload"]["number"])
            if inspect.isawaitable(given):
                await given
        if claims:
            bare.complete(claims)
        else:
            await asyncio.sleep(_IDLE)
