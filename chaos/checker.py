"""What must be true of everything that processes recorded and of everything that stands on the logs.

Pure: records and logs in, violations out. A rule is a function that yields what breaks it; its first line says it.
"""

from typing import Final, NamedTuple

from chaos import of_clients, of_handlers, of_logs
from chaos.history import ENDED
from chaos.story import Found, Row, Rule, Story


class Violation(NamedTuple):
    """A rule that was broken, by which job, and how."""

    rule: str
    job: str
    detail: str


def ended(story: Story) -> Found:
    """When everything is healed, every job comes to its end."""
    for job, steps in story.steps.items():
        if steps and steps[-1].after not in ENDED:
            yield job, f"it is still {steps[-1].after}, attempt {steps[-1].attempt}"


def row(story: Story) -> Found:
    """The row of a job is what its log comes to, counted by us."""
    for job in {**story.rows, **story.logs}:
        steps = story.steps.get(job)
        ours = Row(steps[-1].after, len(steps), steps[-1].attempt, steps[-1].failures) if steps else None
        if story.rows.get(job) != ours:
            yield job, f"its row is {story.rows.get(job)}, its log comes to {ours}"


def verified(story: Story) -> Found:
    """`verify` finds nothing, nobody ends for a reason that nobody gave, and all leave when they are asked to."""
    for finding in story.findings:
        yield "", finding


RULES: Final[tuple[Rule, ...]] = (
    *of_clients.RULES, *of_logs.RULES, *of_handlers.RULES, ended, row, verified,
)  # fmt: skip


def violations(story: Story) -> list[Violation]:
    """Hold everything to every rule."""
    return [Violation(rule.__name__, job, detail) for rule in RULES for job, detail in rule(story)]
