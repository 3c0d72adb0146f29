"""One event of every kind, every field filled, with the text that is stored for it."""

from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from leftfold.core import events as e
from leftfold.core.job import Job
from leftfold.core.letters import Reason, Stage
from leftfold.core.limits import SECOND
from leftfold.core.retry import Allowance, Backoff, Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor

ERROR: Final = Failure(code="broken", message="no", type="OSError", traceback="line 1", details=Raw(b'{"a":[1]}'))
SPEC: Final = Spec(
    kind="demo",
    payload=Raw(b"[1]"),
    queue="fast",
    priority=3,
    key="k",
    tenant="acme",
    correlation_id="order-7",
    cause="job-0",
)
POLICY: Final = Policy(
    max_failures=3,
    backoff=Backoff(base=SECOND, factor=3.0, cap=9 * SECOND, jitter=False),
    by_error={"network": Allowance(max_failures=None, delays=(SECOND,))},
    lease=30 * SECOND,
    timeout=600 * SECOND,
    on_exhausted="fail",
    hold_stalled=True,
)
WAIT: Final = Wait(until=WaitFor.JOBS, key="after", deadline=99, jobs=("a", "b"), not_before=98)
_ERROR_TEXT: Final = '{"code":"broken","message":"no","type":"OSError","traceback":"line 1","details":{"a":[1]}}'
_SPEC_TEXT: Final = (
    '{"kind":"demo","payload":[1],"queue":"fast","priority":3,"key":"k","tenant":"acme",'
    '"correlation_id":"order-7","cause":"job-0"}'
)
_POLICY_TEXT: Final = (
    '{"max_failures":3,"backoff":{"base":1000000,"factor":3.0,"cap":9000000,"jitter":false},'
    '"by_error":{"network":{"max_failures":null,"delays":[1000000]}},"lease":30000000,"timeout":600000000,'
    '"on_exhausted":"fail","hold_stalled":true}'
)
_WAIT_TEXT: Final = '{"until":"jobs","key":"after","deadline":99,"jobs":["a","b"],"not_before":98}'
_LETTER_TEXT: Final = '"attempts":2,"last_owner":"w","last_lease_expires_at":5,"correlation_id":"order-7"}'
_ONE: Final = Raw(b"1")


def json_text(size: int) -> Raw:
    """Give a payload of this many bytes."""
    return Raw(b'"%b"' % (b"t" * (size - 2)))


#: The stored text of each, spelled out: it is the format of every log there is.
EVENTS: Final[tuple[tuple[e.AnyEvent, str], ...]] = (
    (e.Received(spec=SPEC), f'{{"spec":{_SPEC_TEXT}}}'),
    (
        e.Enqueued(due=7, policy=POLICY, spec=SPEC),
        f'{{"due":7,"policy":{_POLICY_TEXT},"spec":{_SPEC_TEXT}}}',
    ),
    (e.Claimed(token=f"{0:024x}", lease=9), f'{{"token":"{0:024x}","lease":9}}'),
    (e.Started(), "{}"),
    (e.Suspended(wait=WAIT), f'{{"wait":{_WAIT_TEXT}}}'),
    (e.Parked(wait=WAIT), f'{{"wait":{_WAIT_TEXT}}}'),
    (
        e.Resumed(key="after", payload=_ONE, expired=True, outcomes={"a": "failed"}),
        '{"key":"after","payload":1,"expired":true,"outcomes":{"a":"failed"}}',
    ),
    (e.Succeeded(result=_ONE), '{"result":1}'),
    (e.Retried(error=ERROR, due=8), f'{{"error":{_ERROR_TEXT},"due":8}}'),
    (e.Released(due=8, reason="snooze"), '{"due":8,"reason":"snooze"}'),
    (e.Stalled(owner="w", lease_until=5, reason="gone"), '{"owner":"w","lease_until":5,"reason":"gone"}'),
    (e.Requeued(due=8, reason="again"), '{"due":8,"reason":"again"}'),
    (e.Failed(error=ERROR), f'{{"error":{_ERROR_TEXT}}}'),
    (
        e.DeadLettered(
            error=ERROR,
            reason_code=Reason.TIMEOUT,
            stage=Stage.FETCH,
            last_error=ERROR,
            attempts=2,
            last_owner="w",
            last_lease_expires_at=5,
            correlation_id="order-7",
        ),
        f'{{"error":{_ERROR_TEXT},"reason_code":"timeout","stage":"fetch","last_error":{_ERROR_TEXT},{_LETTER_TEXT}',
    ),
    (
        e.Cancelled(mode=CancelMode.HARD, reason="stop", error=ERROR),
        f'{{"mode":"hard","reason":"stop","error":{_ERROR_TEXT}}}',
    ),
    (e.CancelRequested(reason="stop"), '{"reason":"stop"}'),
    (e.CancelDelivered(), "{}"),
    (e.Starved(attempt=2, length=90_000_000), '{"attempt":2,"length":90000000}'),
    (e.Signalled(key="go", payload=_ONE), '{"key":"go","payload":1}'),
    (e.Progress(fraction=0.5, message="half"), '{"fraction":0.5,"message":"half"}'),
    (e.PlanGenerated(plan=_ONE), '{"plan":1}'),
    (e.NodeStarted(node="n", data=_ONE), '{"node":"n","data":1}'),
    (e.NodeFinished(node="n", data=_ONE), '{"node":"n","data":1}'),
    (e.StepStarted(step="s", data=_ONE), '{"step":"s","data":1}'),
    (e.StepFinished(step="s", result=_ONE), '{"step":"s","result":1}'),
    (e.ToolInvocationStarted(tool="t", invocation="i", data=_ONE), '{"tool":"t","invocation":"i","data":1}'),
    (e.ToolInvocationFinished(tool="t", invocation="i", data=_ONE), '{"tool":"t","invocation":"i","data":1}'),
    (e.EvidenceAdded(name="r", data=_ONE), '{"name":"r","data":1}'),
    (e.Compensated(step="s", data=_ONE), '{"step":"s","data":1}'),
    (e.Custom(name="mine", data=_ONE), '{"name":"mine","data":1}'),
    (e.Remarked(text="asked the bank"), '{"text":"asked the bank"}'),
    (e.Resolved(reason="paid by hand"), '{"reason":"paid by hand"}'),
)


def fitting(event: e.AnyEvent, job: Job | None) -> e.AnyEvent:
    """Give the event as it can be said of this job: about its own wait, its own owner, its own attempts."""
    match event:
        case e.Resumed() if job and job.wait:
            return replace(event, key=job.wait.key)
        case e.Stalled() if job and job.lease:
            return replace(event, owner=job.lease.owner)
        case e.DeadLettered() if job:
            return replace(event, attempts=job.attempt)
        case _:
            return event
