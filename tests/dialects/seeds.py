"""The tables of the five seeds, transcribed by reading them: a second copy, to hold the first one against."""

SEED_FILES = {
    "formal": "000_651bda8f474453a4.txt",
    "authoritative": "001_0f1b253d3730a2cf.txt",
    "reliability": "002_bd2f813709214918.txt",
    "contract": "003_fc5ab45b56d2e679.txt",
    "quality": "004_212d02670cbba488.txt",
}

# --- seed 000, §3: "state × event → next_state"; a dash is an illegal combination --------------------------------

FORMAL_STATES = ["Queued", "Running", "Waiting", "Parked", "Retrying", "Completed", "Failed", "Cancelled"]
FORMAL_EVENTS = [
    "job_created", "job_queued", "job_requeued", "job_leased", "job_running",
    "job_waiting", "wait_completed", "job_completed", "job_failed", "job_cancelled",
]  # fmt: skip
FORMAL_ROWS = """
| (initial) | Queued | Queued | Queued | —       | —       | —       | —      | —         | —      | —         |
| Queued    | —      | —      | Queued | Running | Running | —       | Queued | —         | —      | —         |
| Running   | —      | —      | Queued | —       | —       | Waiting | Queued | Completed | Failed | Cancelled |
| Waiting   | —      | —      | —      | —       | —       | —       | Queued | —         | —      | Cancelled |
| Parked    | —      | —      | —      | —       | —       | —       | Queued | —         | —      | Cancelled |
| Retrying  | —      | —      | Queued | Running | Running | —       | Queued | —         | —      | —         |
| Completed | —      | —      | —      | —       | —       | —       | —      | —         | —      | —         |
| Failed    | —      | —      | Queued | —       | —       | —       | —      | —         | —      | —         |
| Cancelled | —      | —      | —      | —       | —       | —       | —      | —         | —      | —         |
"""
FORMAL_CELLS = [
    (state, event, None if cell == "—" else cell)
    for state, *cells in ([cell.strip() for cell in row.split("|")[1:-1]] for row in FORMAL_ROWS.strip().splitlines())
    for event, cell in zip(FORMAL_EVENTS, cells, strict=True)
]

# --- seed 001, "events and transitions": event → target states ----------------------------------------------------

AUTHORITATIVE_STATES = ["Queued", "Leased", "Running", "Waiting", "Retrying", "Completed", "Failed", "Cancelled"]
AUTHORITATIVE_TARGETS = [
    ("job_created", ["Queued"]),
    ("job_requeued", ["Queued", "Retrying"]),
    ("job_leased", ["Leased"]),
    ("job_running", ["Running"]),
    ("job_waiting", ["Waiting"]),
    ("wait_completed", ["Queued", "Running"]),
    ("job_completed", ["Completed"]),
    ("job_failed", ["Failed"]),
    ("job_cancelled", ["Cancelled"]),
]

# --- seed 002, "Allowed Transitions" with the diagram (first) and "Valid Transitions" (second) --------------------

RELIABILITY_STATES = ["queued", "assigned", "running", "succeeded", "failed", "cancelled", "dead_lettered"]
RELIABILITY_EVENTS = [
    "job_claimed", "job_started", "job_lease_renewed", "job_heartbeat", "job_succeeded", "job_failed",
    "job_cancelled", "job_dead_lettered", "job_compensated",
]  # fmt: skip
IN_FIRST = {
    ("(initial)", "queued"),
    ("queued", "assigned"),
    ("assigned", "running"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("queued", "dead_lettered"),
    ("assigned", "dead_lettered"),
    ("running", "dead_lettered"),
}
IN_SECOND = {
    ("queued", "assigned"),
    ("assigned", "running"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("queued", "cancelled"),
    ("assigned", "cancelled"),
    ("running", "cancelled"),
}
#: The seed lists its event types apart from its edges; the past tense of the target's name joins them.
LEADS_TO = {
    "queued": "job_enqueued", "assigned": "job_claimed", "running": "job_started", "succeeded": "job_succeeded",
    "failed": "job_failed", "cancelled": "job_cancelled", "dead_lettered": "job_dead_lettered",
}  # fmt: skip

# --- seed 003, "Allowed transitions (authoritative)" with the event types of "Event semantics" --------------------

CONTRACT_STATES = ["queued", "claimed", "running", "succeeded", "failed", "stalled"]
CONTRACT_EVENTS = ["enqueued", "claimed", "started", "heartbeat", "succeeded", "failed", "stalled", "requeued"]
CONTRACT_TRANSITIONS = [
    ("(initial)", "enqueued", "queued"),
    ("queued", "claimed", "claimed"),
    ("stalled", "claimed", "claimed"),
    ("claimed", "started", "running"),
    ("claimed", "heartbeat", "claimed"),
    ("running", "heartbeat", "running"),
    ("running", "succeeded", "succeeded"),
    ("running", "failed", "failed"),
    ("claimed", "stalled", "stalled"),
    ("running", "stalled", "stalled"),
    ("stalled", "requeued", "queued"),
]

# --- seed 004, §1 and §2, "can change to" --------------------------------------------------------------------------

TASK_TARGETS = {
    "inbox": ["todo", "cancelled"],
    "todo": ["doing", "blocked", "cancelled"],
    "doing": ["done", "blocked", "cancelled"],
    "blocked": ["todo", "doing", "cancelled"],
    "done": [],
    "cancelled": [],
}
RUN_TARGETS = {
    "queued": ["running", "cancelled"],
    "running": ["succeeded", "failed", "timeout", "cancelled"],
    "succeeded": [],
    "failed": [],
    "timeout": [],
    "cancelled": [],
}
