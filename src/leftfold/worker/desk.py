"""Where handlers say how far they are, and ask what was answered: from the loop, or from any thread."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress

from leftfold.aengine import AsyncEngine
from leftfold.core import events as e
from leftfold.core.values import Answer
from leftfold.store.replies import Claim
from leftfold.worker.writing import Writer


class Desk:
    """The worker's side of what contexts offer. Made on its loop."""

    def __init__(self, engine: AsyncEngine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()

    def tell(self, claim: Claim, note: e.AnyNote) -> None:
        """Put a note on the job's log with the next flush."""
        if threading.get_ident() == self.thread:  # before what comes of the attempt
            self._writer.tell(claim, note)
            return
        with suppress(RuntimeError):  # the loop is closed: the job was given back, or is lost
            self.loop.call_soon_threadsafe(self._writer.tell, claim, note)

    async def answers(self, claim: Claim) -> Mapping[str, Answer]:
        """Give what the job's waits were answered with so far."""
        return (await self._engine.get(claim.job_id)).answers
