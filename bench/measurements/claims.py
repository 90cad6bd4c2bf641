"""The time of a claim while an old transaction keeps every dead row alive, against the same churn without it.
J11

Runs are queued, claimed and finished through the store, some at a time, as a worker does: it queries near the
newest turn, and once per poll everywhere. Two databases churn in turn, one of them pinned: a snapshot holds
dead rows in its own database only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import our_store
from bench.figures import Figure, at_most, percentile
from bench.setting import Setting, connected
from easel.host.runs.worker import NEAR_TURNS

if TYPE_CHECKING:
    from easel.stores.postgres import PostgresDatabase

AT_ONCE = 25
# Runs queued, claimed and finished in one go.
EVERYWHERE_EACH = 100
# A worker queries everywhere once a second, which at this pace is one claim in about a hundred.


async def claims(setting: Setting) -> list[Figure]:
    """Claim time while a long transaction pins old rows, against the same churn without one."""
    churn = setting.size(50_000, 10_000)
    turns = churn // AT_ONCE
    async with (
        our_store.opened(setting) as (database, url),
        our_store.opened(setting) as (free_database, _),
        connected(url) as pin,
    ):
        pinned, free = Churn(database), Churn(free_database)
        for side in (pinned, free):
            await side.once()
        async with pin.transaction(isolation="repeatable_read"):
            await pin.fetchval("select count(*) from runs")
            for turn in range(turns):
                # Only the second half is read: by then there are thousands of dead rows, and neither side is
                # warming up.
                if turn == turns // 2:
                    setting.say(f"{churn // 2:,} runs have passed under the snapshot; now it counts")
                    for side in (pinned, free):
                        side.forget()
                for side in (pinned, free):
                    await side.once()
    name = f"claim, {churn:,} runs under a pinned snapshot"
    return [
        _compare(f"{name}, p50", pinned.near, free.near, 0.5, None),
        _compare(f"{name}, p99", pinned.near, free.near, 0.99, 3),
        _compare(f"{name}, look everywhere", pinned.everywhere, free.everywhere, 0.5, None),
    ]


def _compare(name: str, pinned: list[float], free: list[float], share: float, bar: float | None) -> Figure:
    return at_most(
        name, percentile(pinned, share), percentile(free, share), unit="ms", bar=bar, against="unpinned"
    )


class Churn:
    """One worker's claims, with the milliseconds of each, by the kind of query."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._worker_id = our_store.worker()
        self._latest_turn = 0
        self._claims = 0
        self.forget()

    def forget(self) -> None:
        self.near: list[float] = []
        self.everywhere: list[float] = []

    async def once(self) -> None:
        await our_store.enqueue(self._database, AT_ONCE)
        look_everywhere = self._claims % EVERYWHERE_EACH == 0
        after_turn = 0 if look_everywhere else max(0, self._latest_turn - NEAR_TURNS)
        began = time.perf_counter()
        claimed = await our_store.claim(self._database, self._worker_id, AT_ONCE, after_turn)
        (self.everywhere if look_everywhere else self.near).append((time.perf_counter() - began) * 1000)
        assert len(claimed) == AT_ONCE, f"{len(claimed)} of {AT_ONCE} queued runs were found"
        self._claims += 1
        self._latest_turn = max(claim.turn_no for claim in claimed)
        await our_store.finish(self._database, claimed)
