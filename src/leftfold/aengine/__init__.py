# Rendered from leftfold/engine by `make render`: change that one.
"""The engine for asyncio: `leftfold.engine` with `await`. See there."""

from leftfold.aengine.feeding import Feeding
from leftfold.aengine.making import Making
from leftfold.aengine.owning import Owning
from leftfold.aengine.proving import Proving
from leftfold.aengine.reading import Reading
from leftfold.aengine.telling import Telling


class AsyncEngine(Making, Owning, Telling, Reading, Feeding, Proving):
    """A store, opened: see `leftfold.open`."""
