"""A document and many agents, through two APIs and two workers that share only Postgres."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil

from easel.core.document.document import revision_of
from easel.core.document.lease import TTL
from tests.journeys.client import Client, call, new_session, script, wait_ms
from tests.requirements import case, rule
from tests.support.processes import wait_for_text
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journeys.conftest import Cluster
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import Launcher

AGENTS = 50
PLAN = "# Plan\n\n- one\n- two\n"
EDITED = PLAN.replace("two", "2")
EDIT = "@@ -4 +4 @@\n-- two\n+- 2\n"
FOREVER = wait_ms(600_000)
STEP_MS = 5_000
LOOP_STEPS = 4  # 20 s: longer than a lease without activity
LATE_SECONDS = 1.0  # between the end of a lease and an answer that shows it


async def make_document(client: Client, session_id: str) -> str:
    canvas_id = f"doc-{secrets.token_hex(6)}"
    params = {
        "canvasId": canvas_id,
        "spec": {"version": 1, "mode": "markdown"},
        "ownerSessionKey": f"agent:main:{session_id}",
    }
    created = await client.post("/api/rpc", {"method": "canvas.create", "params": params})
    assert created.status_code == 200, created.text
    run_id = await client.start(
        script(
            call("canvas_check_out"),
            call(
                "canvas_apply_patch",
                lease_id="$1.lease_id",
                base_revision_id="$1.revision_id",
                patch="@@ -0,0 +1,4 @@\n+# Plan\n+\n+- one\n+- two\n",
            ),
        ),
        session_id=session_id,
    )
    await client.wait_for(run_id, within=60)
    assert (await get(client, canvas_id))["text"] == PLAN
    return canvas_id


async def get(client: Client, canvas_id: str, at: int = 0) -> dict[str, Any]:
    answer = await client.get(f"/api/documents/{canvas_id}", at)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def results(stored_runs: StoredRuns, run_id: str) -> list[dict[str, Any]]:
    log = await stored_runs.log(run_id)
    return [event.data["result"] for event in log if event.type == "tool.result"]


@rule("CT-10", "CT-36")
@case("C1")
async def test_one_of_many_runs_in_two_workers_gets_the_lease(cluster: Cluster) -> None:
    async with cluster.client() as client:
        canvas_id = await make_document(client, new_session())
        check_out = script(call("canvas_check_out", canvas_id=canvas_id), FOREVER)
        run_ids = await asyncio.gather(*(client.start(check_out, at=number % 2) for number in range(AGENTS)))
        answers: list[dict[str, Any]] = []

        async def have_all_answered() -> bool:
            found = [await results(cluster.stored_runs, run_id) for run_id in run_ids]
            answers[:] = [one for several in found for one in several]
            return len(answers) == AGENTS

        await wait_for(have_all_answered, within=60, what="every agent has an answer")
        codes = Counter(answer.get("code", "ok") for answer in answers)
        assert codes == {"ok": 1, "LOCK_NOT_AVAILABLE": AGENTS - 1}
        await asyncio.gather(*(client.cancel(run_id) for run_id in run_ids))


@rule("CT-18", "CT-19", "CT-36")
@case("C2")
async def test_message_at_another_api_ends_the_lease_and_the_agent_cannot_write(
    cluster: Cluster, tmp_path: Path
) -> None:
    session_id, pid_file = new_session(), tmp_path / "held"
    async with cluster.client() as client:
        canvas_id = await make_document(client, session_id)
        lease = {"lease_id": "$1.lease_id"}
        run_id = await client.start(
            script(
                call("canvas_check_out"),
                call("canvas_read_all", **lease),
                call("test__HoldChild", pid_file=str(pid_file)),
                call("canvas_apply_patch", **lease, patch=EDIT),
                call("canvas_check_out"),
            ),
            session_id=session_id,
        )

        async def is_held() -> bool:
            return pid_file.exists()

        await wait_for(is_held, within=30, what="the agent waits before its patch")
        before = await get(client, canvas_id)
        assert before["lease"]["run_id"] == run_id
        await client.start("noop", session_id=session_id, at=1)
        watch = Stopwatch()
        document = await get(client, canvas_id, at=0)
        seconds = watch.seconds
        assert (document["canvas_epoch"], "lease" in document) == (before["canvas_epoch"] + 1, False)
        assert seconds < 0.1
        psutil.Process(json.loads(pid_file.read_text())["pid"]).kill()
        await client.wait_for(run_id, within=60)
        answers = await results(cluster.stored_runs, run_id)
        assert [answer.get("code") for answer in answers[3:]] == ["STALE_EPOCH", "STALE_EPOCH"], answers
        assert answers[3]["revision_id"] == revision_of(PLAN)
        assert (await get(client, canvas_id, at=1))["text"] == PLAN


@rule("CT-12", "CT-14", "CT-15", "RX-30", "RX-49")
@case("C4")
async def test_lease_of_a_long_loop_is_kept_and_that_of_a_killed_worker_ends_in_15_seconds(
    launcher: Launcher, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    """Two workers with one slot each: the second is in a loop of its own until the lease of the first has
    ended, then it takes over the run of the killed one.
    """
    held, sessions = tmp_path / "held", [new_session(), new_session()]
    lease = {"lease_id": "$1.lease_id"}
    read = [call("canvas_check_out"), call("canvas_read_all", **lease)]
    (api,) = launcher.ready(launcher.api())
    killed = launcher.test_worker(WORKER_RUNS="1")
    async with Client(api) as client:
        lost, kept = [await make_document(client, session_id) for session_id in sessions]
        lost_run = await client.start(
            script(
                *read,
                call("test__CountAndHoldOnce", file=str(held)),
                call("canvas_apply_patch", **lease, patch=EDIT),
                call("canvas_check_out"),
                call("canvas_read_all", lease_id="$5.lease_id"),
                call("canvas_apply_patch", lease_id="$5.lease_id", patch=EDIT),
            ),
            session_id=sessions[0],
        )
        await asyncio.to_thread(wait_for_text, held, within=60, what="the first worker is in its loop")
        launcher.test_worker(WORKER_RUNS="1")
        kept_run = await client.start(
            script(
                *read,
                *[call("gsv__Sleep", ms=STEP_MS)] * LOOP_STEPS,
                call("canvas_apply_patch", **lease, patch=EDIT),
            ),
            session_id=sessions[1],
        )

        async def is_in_its_loop() -> bool:
            return len(await results(stored_runs, kept_run)) >= len(read)

        await wait_for(is_in_its_loop, within=60, what="the second worker is in its loop")
        assert (await get(client, lost))["lease"]["run_id"] == lost_run
        killed.kill()
        holders: set[str | None] = set()

        async def has_ended() -> bool:
            holders.add((await get(client, kept)).get("lease", {}).get("run_id"))
            return "lease" not in await get(client, lost)

        await wait_for(has_ended, within=TTL.total_seconds() + LATE_SECONDS, what="the lease has ended")
        assert (await client.run(lost_run))["attempt"] == 1, "the run was taken over too early for this test"
        assert holders == {kept_run}
        await stored_runs.wait_until_all_ended([kept_run, lost_run], within=60)
        answers = [await results(stored_runs, run_id) for run_id in (kept_run, lost_run)]
        assert "code" not in answers[0][-1], answers[0]
        assert answers[0][-1]["new_revision_id"] == revision_of(EDITED)
        assert [answer.get("code") for answer in answers[1][3:]] == ["LEASE_EXPIRED", None, None, None]
        for canvas_id, run_id in ((kept, kept_run), (lost, lost_run)):
            assert (await client.run(run_id))["status"] == "completed"
            assert [row.type for row in await stored_runs.log(run_id)].count("done") == 1
            assert (await get(client, canvas_id))["text"] == EDITED
            versions = (await client.get(f"/api/documents/{canvas_id}/history")).json()["versions"]
            assert [one["author"]["run_id"] for one in versions].count(run_id) == 1
        assert held.read_text() == "xx"
        assert (await stored_runs.run(lost_run))["attempt"] == 2
