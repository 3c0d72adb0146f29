"""Several scopes at once, one process each: a search is pure computation on one core."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from leftfold.proof.search import Found, search
from leftfold.proof.world import Scope

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_reports: "SimpleQueue[Found | None]"


def search_all(scopes: Sequence[Scope], progress: Callable[[Found], None] = lambda _: None) -> list[Found]:
    """Search the scopes and give what was found, in their order; `progress` hears of each now and then."""
    workers = min(len(scopes), os.cpu_count() or 1)
    if workers == 1:
        return [search(scope, progress=progress) for scope in scopes]
    context = get_context("spawn")
    reports: SimpleQueue[Found | None] = context.SimpleQueue()

    def done(_: Future[Found]) -> None:
        reports.put(None)

    with ProcessPoolExecutor(workers, context, _remember, (reports,)) as pool:
        searches = [pool.submit(_search, scope) for scope in scopes]
        for each in searches:
            each.add_done_callback(done)
        running = len(searches)
        while running:
            report = reports.get()
            if report is None:
                running -= 1
            else:
                progress(report)
        return [each.result() for each in searches]


def _remember(reports: "SimpleQueue[Found | None]") -> None:
    global _reports  # noqa: PLW0603 - set once, when the process starts
    _reports = reports


def _search(scope: Scope) -> Found:
    return search(scope, progress=_reports.put)
