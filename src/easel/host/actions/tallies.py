"""Tallies of refresh jobs: many successful executions become one audit record. RS-69

Owns counting. An execution joins the open tally of its job if tool, sandbox mode, worker and exit code are
equal; each tally is recorded a minute after its first execution, and when the process stops. The rows of the
executions in the store stay the record of each one (CV-48).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from easel.core.action.execution import Execution
from easel.core.audit.record import format_time
from easel.core.principal import Principal
from easel.host.audit.audit import Audit

TALLY_SECONDS = 60.0
COMMAND_DETAILS = ("sandbox_mode", "worker_id", "exit_code")  # of SB-16


@dataclass(slots=True)
class _Tally:
    principal: Principal
    canvas_id: str
    details: Mapping[str, Any]
    first: datetime
    last: datetime
    timer: asyncio.TimerHandle
    count: int = 1


class RefreshTallies:
    def __init__(self, audit: Audit, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._audit = audit
        self._now = now
        self._open: dict[tuple[Any, ...], _Tally] = {}

    def add(self, principal: Principal, execution: Execution, commands: Sequence[Mapping[str, Any]]) -> None:
        """Count a successful execution, with the audit details of the command that it ran, if any."""
        command = commands[-1] if commands else dict[str, Any]()
        details: dict[str, Any] = {
            "refreshId": execution.actor.get("clientId"),
            "actionId": execution.action_id,
            "tool": execution.tool,
            **{name: command[name] for name in COMMAND_DETAILS if name in command},
        }
        key = (execution.account_id, execution.canvas_id, *details.values())
        now = self._now()
        if tally := self._open.get(key):
            tally.count += 1
            tally.last = now
            return
        timer = asyncio.get_running_loop().call_later(TALLY_SECONDS, self._record, key)
        self._open[key] = _Tally(principal, execution.canvas_id, details, now, now, timer)

    def close(self) -> None:
        """Record all open tallies."""
        for key in list(self._open):
            self._record(key)

    def _record(self, key: tuple[Any, ...]) -> None:
        tally = self._open.pop(key)
        tally.timer.cancel()
        self._audit.note(
            tally.principal,
            "canvas.refreshed",
            subject=tally.canvas_id,
            details={
                **tally.details,
                "count": tally.count,
                "first": format_time(tally.first),
                "last": format_time(tally.last),
            },
        )
