# Rendered from leftfold/engine by `make render`: change that one.
"""Is it true? Checking the store against itself, mending rows from their logs, whole jobs in and out."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime

from leftfold import asking
from leftfold.aengine.running import Running, one
from leftfold.core.errors import JobNotFoundError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.core.limits import text
from leftfold.store import audit, export
from leftfold.store.audit import Examined, Finding, Kept, Pages, Selection
from leftfold.store.export import Imported, Writer
from leftfold.store.query import Operation
from leftfold.store.replies import Verdict
from leftfold.times import since_1970

#: How many jobs are in memory at a time.
PAGE: int = 500
FINDINGS_MAX: int = 1_000

Progress = Callable[[int], None]


class Proving(Running):
    """Checking the store, mending it, and taking jobs in and out."""

    async def verify(
        self,
        *,
        job: str | None = None,
        since: datetime | None = None,
        freeze: bool = True,
        by: str | None = None,
        progress: Progress | None = None,
    ) -> Verdict:
        """Derive everything anew from the logs and give what differs: of one job, or of those that changed `since`.

        A job that cannot be as it says is frozen: nobody claims or changes it. `progress` hears how many jobs were
        looked at. What others write meanwhile does not disturb it.
        """
        ids = None if job is None else [asking.id_of(job)]
        selection = Selection(ids=ids, since=None if since is None else since_1970("since", since))
        jobs = events = total = 0
        findings: list[Finding] = []
        frozen: list[str] = []
        standing: list[str] = []
        after, pages = None, Pages()
        while kept := await self._page(selection, after, pages):
            found = [finding for each in kept for finding in audit.examine(each).findings]
            wrong = sorted({each.job_id for each in found if each.job_id and each.what not in audit.HARMLESS})
            if freeze and wrong:
                frozen += await self._freeze(wrong, by)
            still = [each.job_id for each in kept if each.frozen_at is not None and each.job_id not in wrong]
            standing = (standing + still)[:FINDINGS_MAX]
            jobs, events = jobs + len(kept), events + sum(each.size for each in kept)
            total, findings = total + len(found), (findings + found)[:FINDINGS_MAX]
            after = kept[-1].job_id
            if progress:
                progress(jobs)
        if ids is not None and since is None and not jobs:
            raise JobNotFoundError(f"there is no job {ids[0]}")
        if ids is None and since is None:
            found = await self._read(audit.overall, FINDINGS_MAX)
            total, findings = total + len(found), (findings + found)[:FINDINGS_MAX]
        return Verdict(jobs=jobs, events=events, findings=tuple(findings), total=total, frozen=tuple(frozen),
                       still_frozen=tuple(standing))  # fmt: skip

    async def rebuild(self, job: str | None = None, *, reason: str, by: str | None = None) -> list[Finding]:
        """Bring rows that differ from their logs to what the logs say, and the counters; give what was mended.

        It is recorded as an operator's act. A job whose log is not sound stays as it is, and is refused by its id.
        """
        text("reason", reason)
        if not reason:
            raise ValidationError("a rebuild needs a reason: it stands on record")
        actor = by or self.actor
        mended: list[Finding] = []
        if job is not None:
            mended += await self._write(Operation(lambda: audit.rebuild([asking.id_of(job)], actor, reason)))
        else:
            after, pages = None, Pages()
            while kept := await self._page(Selection(), after, pages):
                sound = [each for each in map(audit.examine, kept) if each.job is not None]
                mended += await self._rebuild(sound, actor, reason)
                after = kept[-1].job_id
            mended += await self._write(Operation(lambda: audit.rebuild_lost(FINDINGS_MAX, actor, reason)))
        return mended + await self._write(Operation(lambda: audit.recount(actor, reason)))

    async def _rebuild(self, sound: Sequence[Examined], actor: str, reason: str) -> list[Finding]:
        ids = [each.kept.job_id for each in sound if each.findings or each.kept.frozen_at is not None]
        return await self._write(Operation(lambda: audit.rebuild(ids, actor, reason))) if ids else []

    async def export_jobs(
        self,
        *,
        jobs: Iterable[str] | None = None,
        since: datetime | None = None,
        states: Iterable[State | str] | State | str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
    ) -> AsyncIterator[str]:
        """Give whole jobs as lines of JSON, each with its log as it is stored; see docs/guarantees.md."""
        asked = asking.filter_of(states, queue=queue, kind=kind, tenant=tenant)
        selection = Selection(
            ids=None if jobs is None else [asking.id_of(job) for job in jobs],
            since=None if since is None else since_1970("since", since),
            states=None if asked.states is None else [state.value for state in asked.states],
            queue=queue, kind=kind, tenant=tenant,
        )  # fmt: skip
        ((now,),) = await self._read(one, "clock", {})
        writer = Writer(now)
        yield writer.head()
        after, pages = None, Pages()
        while kept := await self._page(selection, after, pages):
            for each in kept:
                yield writer.job(each)
            after = kept[-1].job_id
        yield writer.foot()

    async def import_jobs(self, lines: Iterable[str], *, progress: Progress | None = None) -> Imported:
        """Take in the jobs of an export, ids, times and logs as they are. What is there already is left alone.

        A job whose log is not sound, or whose key a live job holds, is refused; the others come in. What is no whole
        export raises, and the jobs before that place are in.
        """
        done = Imported(imported=0, present=0, refused=())
        for batch in export.batches(lines, PAGE):
            done += await self._bring_in(batch)
            if progress:
                progress(done.imported + done.present + len(done.refused))
        return done

    async def _bring_in(self, batch: Sequence[Examined]) -> Imported:
        return await self._write(Operation(lambda: export.bring_in(batch)))

    async def _page(self, selection: Selection, after: str | None, pages: Pages) -> list[Kept]:
        kept: list[Kept] = []
        if selection.ids is None:
            kept = await self._read(audit.page, selection, after, pages.size)
        else:
            # By the ids that are asked for: those that have no row any more stand in no order of rows.
            rest = sorted(each for each in set(selection.ids) if after is None or each > after)
            while rest and not kept:
                asked = selection._replace(ids=rest[: pages.size])
                kept, rest = await self._read(audit.page, asked, None, pages.size), rest[pages.size :]
        pages.learn(kept)
        return kept

    async def _freeze(self, wrong: Sequence[str], by: str | None) -> list[str]:
        return await self._write(Operation(lambda: audit.freeze(wrong, by or self.actor)))
