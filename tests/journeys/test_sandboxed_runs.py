"""Runs whose commands are isolated keep every promise of runs: a worker may be killed in the middle
of one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client, call, new_session, say, script
from tests.requirements import rule
from tests.sandbox.processes import sleepers
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import Launcher

pytestmark = pytest.mark.bwrap


@rule("SB-18", "RS-38")
async def test_worker_is_killed_while_its_command_runs_and_another_continues(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    """The command is killed with its worker; it is not run again, and its files are still there."""
    (api,) = launcher.ready(launcher.api())
    doomed = launcher.worker()
    message = script(
        call("local__Write", path="note", content="kept"),
        call("local__Bash", command="echo once >> count; exec sleep 4401"),
        call("local__Bash", command="cat note count"),
        say("done"),
    )
    async with Client(api) as client:
        run_id = await client.start(message)
        await asyncio.to_thread(
            wait_for_sync, lambda: len(sleepers(4401)) == 1, within=60, what="the command runs"
        )
        doomed.kill()
        await asyncio.to_thread(
            wait_for_sync, lambda: not sleepers(4401), within=30, what="the command went with its worker"
        )
        launcher.worker()
        await stored_runs.wait_until_all_ended([run_id], within=60)
    await stored_runs.check([run_id], says="done")
    results = [row.data for row in await stored_runs.log(run_id) if row.type == "tool.result"]
    assert [row["tool"] for row in results] == ["local__Write", "local__Bash", "local__Bash"]
    assert "error" in results[1], "whether it came to its end is not known, and it is not run again"
    assert results[2]["result"]["output"] == "keptonce\n"


@rule("SB-18", "SB-02")
async def test_sessions_on_two_workers_each_find_their_own_files(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    (api,) = launcher.ready(launcher.api())
    launcher.worker()
    launcher.worker()
    async with Client(api) as client:
        sessions = [new_session() for _ in range(8)]
        run_ids = [
            await client.start(
                script(call("local__Bash", command=f"echo {session}:{turn} >> log; cat log"), say("done")),
                session_id=session,
            )
            for turn in range(3)
            for session in sessions
        ]
        await stored_runs.wait_until_all_ended(run_ids, within=60)
    await stored_runs.check(run_ids, says="done")
    for session, run_id in zip(sessions, run_ids[-len(sessions) :], strict=True):
        [result] = [row.data["result"] for row in await stored_runs.log(run_id) if row.type == "tool.result"]
        assert result["output"] == "".join(f"{session}:{turn}\n" for turn in range(3))
