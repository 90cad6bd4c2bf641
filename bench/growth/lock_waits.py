"""Lock waits of over 200 ms, as the log of the Postgres server names them, and the statements that caused
them.

Owns the server's settings for it. The log names the statement that waits and the process that holds the lock;
the statement of that process is read while it holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.setting import connected
from tests.stores.statement_plans import all_statements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.setting import Setting

SETTINGS = {"log_lock_waits": "on", "deadlock_timeout": "200ms"}
SAMPLE_SECONDS = 0.1
_WAIT = re.compile(r"process \d+ still waiting for .* after [\d.]+ ms")
_HOLDER = re.compile(r"Process(?:es)? holding the lock: ([\d, ]+)\.")
_BLOCKING = """
select holder.pid, holder.query
  from pg_stat_activity waiting
 cross join lateral unnest(pg_blocking_pids(waiting.pid)) as blocking(pid)
  join pg_stat_activity holder on holder.pid = blocking.pid
 where waiting.wait_event_type = 'Lock'
"""


@dataclass(slots=True)
class LockWaits:
    """The waits of one measurement, each as `statement of the holder → statement that waits`."""

    found: list[str] = field(default_factory=list[str])
    holders: dict[str, str] = field(default_factory=dict[str, str])  # process id → the last statement

    def read(self, log: str) -> None:
        lines = log.splitlines()
        for number, line in enumerate(lines):
            if not _WAIT.search(line):
                continue
            following = "\n".join(lines[number + 1 : number + 8])
            holder = _HOLDER.search(following)
            pids = holder[1].split(", ") if holder else []
            causes = ", ".join(self.holders.get(pid, "unknown") for pid in pids)
            waiting = following.partition("STATEMENT:")[2] or line
            self.found.append(f"{causes} → {name_statement(waiting)}")


@asynccontextmanager
async def logged_waits(setting: Setting) -> AsyncIterator[LockWaits]:
    """Collect the lock waits during the block; they can be read after it."""
    waits = LockWaits()
    await _configure(setting, {name: f"= '{value}'" for name, value in SETTINGS.items()}, "set")
    start = len(setting.server.log())
    sampling = asyncio.create_task(_sample(setting, waits))
    try:
        yield waits
    finally:
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling
        await _configure(setting, dict.fromkeys(SETTINGS, ""), "reset")
    waits.read(setting.server.log()[start:])


async def _configure(setting: Setting, values: dict[str, str], verb: str) -> None:
    for name, value in values.items():
        await asyncio.to_thread(setting.server.execute, f"alter system {verb} {name} {value}")
    await asyncio.to_thread(setting.server.execute, "select pg_reload_conf()")


async def _sample(setting: Setting, waits: LockWaits) -> None:
    async with connected(setting.server.url()) as connection:
        while True:
            for pid, query in await connection.fetch(_BLOCKING):
                waits.holders[str(pid)] = name_statement(query)
            await asyncio.sleep(SAMPLE_SECONDS)


def name_statement(sql: str) -> str:
    """Return the name of a statement of the product, or its beginning."""
    words = " ".join(sql.split())
    return next(
        (
            name
            for name, known in all_statements("postgres")
            if " ".join(known.sql.split())[:300] == words[:300]
        ),
        words[:100],
    )
