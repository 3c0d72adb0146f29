"""The app that `leftfold demo` runs: jobs that are quick, flaky or slow, one that waits, one that never succeeds."""

import asyncio
import time
from typing import Any

from leftfold.app import App, Call, Context
from leftfold.cli.demo_fleet import LEASE

app = App()  # LEFTFOLD_DATABASE_URL says where


@app.job(lease=LEASE)
def resize(photo: int) -> str:
    """Be quick, as most jobs are."""
    time.sleep(0.05 + photo % 7 / 40)
    return f"photo-{photo}-small.jpg"


@app.job(lease=LEASE, retry_delay=0.5)
async def fetch(ctx: Context, page: int) -> int:
    """Fail once, or twice, and then succeed."""
    await asyncio.sleep(0.1)
    if ctx.failures < 1 + page % 2:
        raise ConnectionError("connection reset by peer")
    return 200


@app.job(lease=LEASE)
async def report(month: int) -> dict[str, int]:
    """Take long enough to be killed in the middle of it."""
    await asyncio.sleep(2)
    return {"month": month, "pages": 12}


@app.job(lease=LEASE, max_failures=3, retry_delay=0.5)
def invoice(order: dict[str, int]) -> int:
    """Fail however often it is tried, if the order lacks its total: that is poison."""
    return order["total"]


@app.job(lease=LEASE)
async def payout(ctx: Context, amount: int) -> str:
    """Wait for somebody, and hold no worker meanwhile."""
    approval = await ctx.wait("approved", timeout=3600)
    return f"{amount} were paid, approved by {approval['by']}"


def calls() -> list[Call[Any]]:
    """Give all jobs of the demo, the kinds well mixed."""
    made: list[Call[Any]] = []
    for number in range(40):
        made += [resize.call(6 * number + each) for each in range(6)]
        made.append(fetch.call(number))
        if number % 2:
            made.append(report.call(number))
    made.insert(len(made) // 4, invoice.call({"id": 13}))
    made.insert(0, payout.call(1_000))
    return made
