"""Tallies of refresh jobs: many successful executions become one audit record. RS-69"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.principal import Principal, PrincipalKind
from easel.host.actions import tallies as tallies_module
from easel.host.actions.tallies import RefreshTallies
from easel.ids import AccountId, CanvasId
from tests.requirements import rule
from tests.support.waiting import wait_for

REFRESH = Principal(AccountId("owner"), "refresh", kind=PrincipalKind.SERVICE)
START = datetime(2026, 11, 18, tzinfo=UTC)
RAN = {"sandbox_mode": "bwrap", "worker_id": "w1", "exit_code": 0, "seconds": 0.2, "sandbox_root": "/x"}


class Notes:
    """Collects notes like `Audit`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def note(self, principal: Principal, action: str, *, subject: str, details: dict[str, Any]) -> None:
        self.records.append({"by": principal.name, "action": action, "subject": subject, **details})


def execution(job: str = "r1", canvas: str = "cockpit") -> Execution:
    return Execution(
        account_id=AccountId("owner"),
        canvas_id=CanvasId(canvas),
        event_id="evt_1",
        action_id="look",
        status=ExecutionStatus.COMPLETED,
        actor={"clientId": job, "trigger": "refresh"},
        tool="local__Bash",
    )


def new_tallies(notes: Notes) -> RefreshTallies:
    times = (START + timedelta(seconds=nth) for nth in count())
    return RefreshTallies(notes, now=lambda: next(times))  # pyright: ignore[reportArgumentType]


@rule("RS-69", "SB-16")
async def test_executions_of_a_job_are_one_record_with_first_and_last_time() -> None:
    notes = Notes()
    tallies = new_tallies(notes)
    for _ in range(5):
        tallies.add(REFRESH, execution(), [RAN])
    assert notes.records == []
    tallies.close()
    assert notes.records == [
        {
            "by": "refresh",
            "action": "canvas.refreshed",
            "subject": "cockpit",
            "refreshId": "r1",
            "actionId": "look",
            "tool": "local__Bash",
            "sandbox_mode": "bwrap",
            "worker_id": "w1",
            "exit_code": 0,
            "count": 5,
            "first": "2026-11-18T00:00:00.000000Z",
            "last": "2026-11-18T00:00:04.000000Z",
        }
    ]
    tallies.close()
    assert len(notes.records) == 1


@rule("RS-69")
async def test_other_job_canvas_or_exit_code_is_another_tally() -> None:
    notes = Notes()
    tallies = new_tallies(notes)
    tallies.add(REFRESH, execution(), [RAN])
    tallies.add(REFRESH, execution(job="r2"), [RAN])
    tallies.add(REFRESH, execution(canvas="other"), [RAN])
    tallies.add(REFRESH, execution(), [{**RAN, "exit_code": 1}])
    tallies.add(REFRESH, execution(), [])
    tallies.close()
    assert [record["count"] for record in notes.records] == [1] * 5


@rule("RS-69")
async def test_tally_is_recorded_after_its_interval(monkeypatch: Any) -> None:
    monkeypatch.setattr(tallies_module, "TALLY_SECONDS", 0.01)
    notes = Notes()
    tallies = new_tallies(notes)
    tallies.add(REFRESH, execution(), [RAN])

    async def is_recorded() -> bool:
        await asyncio.sleep(0)
        return len(notes.records) == 1

    await wait_for(is_recorded)
    tallies.add(REFRESH, execution(), [RAN])
    tallies.close()
    assert len(notes.records) == 2
