"""Canvases with refresh jobs, and helpers that run them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.host.actions import refresh
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


def spec_with_refresh(
    action: Mapping[str, Any],
    *,
    every_ms: int = 60_000,
    tools: tuple[str, ...] = ("gsv__Echo",),
    **options: Any,
) -> Any:
    job = {"id": "poll", "everyMs": every_ms, "action": "look", "enabled": True, **options}
    return {
        "toolPolicy": {"allow": list(tools)},
        "state": {"n": 0},
        "actions": {"look": dict(action)},
        "refresh": [job],
    }


def freeze_job_duration(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Freeze the clock that measures jobs: their interval counts from start to start, also on a
    slow machine.
    """
    clock = HandClock()
    monkeypatch.setattr(refresh, "time", clock)
    return clock


async def run_due_jobs(*instances: HostServices) -> int:
    """Start the due jobs of each instance and wait for their end. Returns how many were started."""
    count = sum([await services.refresh.claim_and_start() for services in instances])
    for services in instances:
        await asyncio.gather(*services.refresh.running.values())
    return count


class SlowJob:
    """A job with an interval of one second that runs until `release` is set."""

    def __init__(self) -> None:
        self.tool = TestTool("slow", self._use, read_only=True)
        self.spec = spec_with_refresh(
            {"kind": "tool.call", "tool": "slow", "timeoutMs": 600_000}, every_ms=1_000, tools=("slow",)
        )
        self.times = 0
        self.started, self.release = asyncio.Event(), asyncio.Event()

    async def _use(self, _: Mapping[str, Any]) -> Any:
        self.times += 1
        self.started.set()
        await self.release.wait()


def count_statements(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each statement from now on as `read` or `write`."""
    statements: list[str] = []

    def counted(name: str, real: Any) -> Any:
        async def ask(*args: Any, **options: Any) -> Any:
            statements.append(name)
            return await real(*args, **options)

        return ask

    for name in ("read", "write"):
        monkeypatch.setattr(database, name, counted(name, getattr(database, name)))
    return statements


async def has_results(services: HostServices, count: int) -> bool:
    return len((await services.state()).get("seen", [])) >= count
