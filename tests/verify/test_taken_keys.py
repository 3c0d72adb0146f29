"""A job that drifted while another took its key: it stays as it is, and is in nobody's way."""

from tests.verify.planting import Shell

from leftfold import Engine
from leftfold.store.audit import What


def test_a_rebuild_leaves_a_job_whose_key_is_taken_and_mends_the_others(engine: Engine, shell: Shell) -> None:
    taken, other = engine.enqueue("work", key="key").job_id, engine.enqueue("work").job_id
    shell.edit_row(taken, key=None)
    shell.edit_row(other, priority=7)
    holder = engine.enqueue("work", key="key").job_id
    assert {finding.what for finding in engine.verify().findings} == {What.ROW}
    mended = {finding.job_id: finding for finding in engine.rebuild(reason="mended by hand")}
    assert (mended[other].what, mended[taken].what) == (What.ROW, What.KEY)
    assert holder in mended[taken].detail
    assert [engine.is_frozen(job_id) for job_id in (taken, other, holder)] == [True, False, False]
    assert [finding.job_id for finding in engine.verify().findings] == [taken]
