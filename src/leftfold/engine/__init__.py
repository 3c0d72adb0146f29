"""The engine: every command on jobs, sync. `leftfold.aengine` is rendered from this package: the same, async.

Each method says what is asked (`leftfold.asking`) and hands an operation to the store, which runs it in one
transaction. A command that may not happen raises and leaves no trace. The `_many` forms write a batch in a few
statements; there, each job has an outcome of its own: a receipt, or the error that a single call would have raised.
"""

from leftfold.engine.feeding import Feeding
from leftfold.engine.making import Making
from leftfold.engine.owning import Owning
from leftfold.engine.proving import Proving
from leftfold.engine.reading import Reading
from leftfold.engine.telling import Telling


class Engine(Making, Owning, Telling, Reading, Feeding, Proving):
    """A store, opened: see `leftfold.open`."""
