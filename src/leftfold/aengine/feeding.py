# Rendered from leftfold/engine by `make render`: change that one.
"""Reading the feed: every committed event, for any number of consumers."""

import logging
from collections.abc import AsyncIterator
from typing import Final, Literal

from leftfold.aengine.running import Running
from leftfold.core.errors import ValidationError
from leftfold.core.limits import between, name
from leftfold.core.record import Record
from leftfold.store import feed
from leftfold.store.feed import Consumer, FeedPage
from leftfold.store.query import Operation

PAGE: Final = 500
PAGE_MAX: Final = 10_000
_LOG: Final = logging.getLogger("leftfold.feed")


class Feeding(Running):
    """Reading the feed."""

    async def feed(
        self,
        consumer: str,
        *,
        limit: int = PAGE,
        start: Literal["beginning", "now"] = "beginning",
    ) -> FeedPage:
        """Give the next events that a consumer has not acknowledged: oldest first, per job in order.

        The same ones come again until `acknowledge`. A new consumer gets everything, or what comes from `now` on.
        """
        name("consumer", consumer)
        between("limit", limit, 1, PAGE_MAX)
        if start not in {"beginning", "now"}:
            raise ValidationError(f"start {start!r} is none of beginning, now")
        if start == "now":
            await self._write(Operation(lambda: feed.begin_now(consumer)))
        return await self._read(feed.read, consumer, limit)

    async def acknowledge(self, page: FeedPage, *, within: object = None) -> None:
        """Let the consumer go on behind a page: `within` the transaction of what it did with it, or by itself."""
        operation = Operation(lambda: feed.acknowledge(page))
        if within is None:
            await self._write(operation)
        else:
            await self.store.run_within(within, operation)

    async def follow(self, consumer: str, *, limit: int = PAGE) -> AsyncIterator[Record]:
        """Give every event up to now that a consumer has not acknowledged; its pages are, one by one, on the way.

        Who stops in the middle gets the page again the next time. Events that somebody damaged are passed over with a
        warning in the log `leftfold.feed`.
        """
        while True:
            page = await self.feed(consumer, limit=limit)
            for record in page.records:
                yield record
            for finding in page.unreadable:
                _LOG.warning("job %s: %s: it is passed over", finding.job_id, finding.detail)
            if not page.stands_still:
                await self.acknowledge(page)
            if page.caught_up:
                break

    async def consumers(self) -> list[Consumer]:
        """Give every consumer of the feed, and how far behind it is."""
        return await self._read(feed.consumers)

    async def forget_consumer(self, consumer: str) -> bool:
        """Forget a consumer; one of the same name starts anew. Tells whether there was one."""
        name("consumer", consumer)
        return await self._write(Operation(lambda: feed.forget(consumer)))
