"""Two APIs and a worker on one Postgres: the limits of an account hold over all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from tests.journeys.client import Client, new_session
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.support.processes import Launcher

RATE, BURST_SECONDS = 20, 5
WITHIN_SECONDS = 60.0


async def test_limits_hold_over_two_apis_and_requests_are_answered_again_later(launcher: Launcher) -> None:
    limits = {"ACCOUNT_LIMITS": f"requests_per_second={RATE},queued_runs=2,runs=1"}
    first, second = launcher.ready(launcher.api(**limits), launcher.api(**limits))
    async with Client(first, second) as client:
        await client.start("noop", session_id="a", at=0)
        await client.start("noop", session_id="b", at=1)
        refused = await client.ask(new_session(), "noop", at=0)
        assert refused.status_code == 429
        assert refused.json()["error"]["details"] == {"limit": "queued_runs", "maximum": 2}

        answers: Counter[int] = Counter()

        async def flood(at: int, seconds: float) -> None:
            loop = asyncio.get_running_loop()
            ends_at = loop.time() + seconds
            while loop.time() < ends_at:
                answers[(await client.get("/api/sessions", at)).status_code] += 1

        await asyncio.gather(flood(0, 2), flood(1, 2))  # uses up what was saved up
        answers.clear()
        await asyncio.gather(flood(0, 3), flood(1, 3))
        assert answers.keys() == {200, 429}
        assert answers[200] <= RATE * 3 * 1.5, "each API alone would answer as many"

        async def is_answered() -> bool:
            return (await client.get("/api/sessions", 1)).status_code == 200

        await wait_for(is_answered, within=WITHIN_SECONDS, what="requests are answered again")
