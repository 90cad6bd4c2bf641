"""Canvases with a job that runs by itself, and what it takes to watch it do so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.host.actions import refresh as canvas_refresh
from tests.host.conftest import TestTool
from tests.host.runs.workers import HandClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from easel.stores.sqlite import SqliteDatabase
    from tests.host.services import HostServices

ECHO = {
    "kind": "tool.call",
    "tool": "gsv__Echo",
    "args": {"value": "again"},
    "saveAs": "seen",
    "saveMode": "append",
}


def polling(
    action: Mapping[str, Any], *, every_ms: int = 60_000, tools: tuple[str, ...] = ("gsv__Echo",), **more: Any
) -> Any:
    job = {"id": "poll", "everyMs": every_ms, "action": "look", "enabled": True, **more}
    return {
        "toolPolicy": {"allow": list(tools)},
        "state": {"n": 0},
        "actions": {"look": dict(action)},
        "refresh": [job],
    }


def take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's next start counts from its last one: with a store's clock that stands still, what it takes on a slow machine must not count."""
    monkeypatch.setattr(canvas_refresh, "time", HandClock())


async def fired(*instances: HostServices) -> int:
    """One look of each instance for what is due; how many jobs were started. They have ended when it returns."""
    count = sum([await services.refresh.claim_and_start() for services in instances])
    for services in instances:
        await asyncio.gather(*services.refresh.running.values())
    return count


class Slow:
    """A job that is slower than its interval of a second: it begins, and ends when it is let."""

    def __init__(self) -> None:
        self.tool = TestTool("slow", self._use, read_only=True)
        self.spec = polling(
            {"kind": "tool.call", "tool": "slow", "timeoutMs": 600_000}, every_ms=1_000, tools=("slow",)
        )
        self.times = 0
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def _use(self, _: Mapping[str, Any]) -> Any:
        self.times += 1
        self.began.set()
        await self.may_end.wait()


def count_statements(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the database is asked to do from now on: `read` or `write`."""
    asked: list[str] = []

    def counted(name: str, real: Any) -> Any:
        async def ask(*args: Any, **given: Any) -> Any:
            asked.append(name)
            return await real(*args, **given)

        return ask

    for name in ("read", "write"):
        monkeypatch.setattr(database, name, counted(name, getattr(database, name)))
    return asked


async def has_seen(services: HostServices, count: int) -> bool:
    return len((await services.state()).get("seen", [])) >= count
