"""Two APIs and two workers on one Postgres are one Easel: every instance gives the same answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import asyncpg
import psutil
import pytest

from tests.journeys.client import (
    TERMINAL,
    Client,
    call,
    check_each,
    new_session,
    say,
    script,
    spread,
    ticked,
    ticks,
    wait_ms,
)
from tests.journeys.soak import short_or_full
from tests.journeys.stored_runs import after_last_start, check_delivery, said_in, starts_in
from tests.requirements import case, rule
from tests.support.proxy import Proxy
from tests.support.sse import Follower, Stream, follow
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for, wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import httpx2

    from tests.journeys.conftest import Cluster
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import Launcher

CANCELLED_WITHIN_SECONDS = 1.0
# "Cancelled within a second", also inside a tool.
REFUSED_WITHIN_SECONDS = 1.0
TIMED = 5
# How often a promised time is measured.
FOREVER = ticks(20_000, 30)
RACES, AT_ONCE = short_or_full(60, 200), 10
# Ten cancels at a time leave both APIs connections for other requests.
MAX_ROUNDS = 2 * RACES // AT_ONCE
MAX_PAUSE_SECONDS = 5.0
RETRY_SECONDS = 0.1  # within which an end that found its session locked is tried again
MAX_BYTES = 2000
BYTES_APART = short_or_full(8, 1)
# More than the whole answer for a run of four events.
A_STORY = script(say("First. "), call("gsv__Echo", value={"answer": 42}), ticks(8, 30), say("Last."))


@rule("RX-01", "RX-03", "RX-05", "RX-08", "RX-11", "RX-33", "RX-34", "RX-35")
async def test_run_is_the_same_on_every_instance(cluster: Cluster) -> None:
    async with cluster.client() as client:
        session_id = new_session()
        run_id = await client.start(A_STORY, session_id=session_id, at=0)
        seen = await asyncio.gather(
            *(client.follower(run_id, at=[index]).read_to_end(within=60) for index in (0, 1, 0, 1))
        )
        views = [await client.run(run_id, at=index) for index in (0, 1)]
        lists = [
            (await client.get(f"/api/runs?session_id={session_id}", at=index)).json() for index in (0, 1)
        ]
    log = await cluster.stored_runs.log(run_id)
    for events in seen:
        check_delivery(events, log)
    assert views[0] == views[1]
    assert views[0]["status"] == "completed"
    assert views[0]["last_seq"] == log[-1].seq
    assert lists[0] == lists[1]
    await cluster.stored_runs.check([run_id])
    assert [row.type for row in log if row.type.startswith("tool.")] == ["tool.call", "tool.result"]


@rule("RX-08", "RX-46")
async def test_api_executes_no_run_and_worker_needs_no_api(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    (api,) = launcher.ready(launcher.api())
    async with Client(api) as client:
        run_id = await client.start(A_STORY)
        assert (await client.run(run_id))["status"] == "queued"
    api.kill()
    assert (await stored_runs.run(run_id))["status"] == "queued"
    launcher.worker()
    await stored_runs.wait_until_all_ended([run_id], within=60)
    await stored_runs.check([run_id])


@case("E2")
@rule("RX-01", "RX-48")
async def test_api_killed_mid_stream_costs_its_readers_nothing(cluster: Cluster) -> None:
    async with cluster.client() as client:
        # They run until they are cancelled, so that none has ended before every reader is in the middle of
        # one.
        run_ids = await asyncio.gather(
            *(client.start(script(FOREVER), at=number % 2) for number in range(30))
        )
        followers = [client.follower(run_id) for run_id in run_ids]  # all start at the first API
        await asyncio.gather(
            *(
                one.read_until(lambda event: "tick 5" in event.data.get("text", ""), within=60)
                for one in followers
            )
        )
        cluster.apis[0].kill()
        # The rest is read from the other one, while the runs go on.
        await asyncio.gather(
            *(
                one.read_until(lambda event: "tick 9" in event.data.get("text", ""), within=60)
                for one in followers
            )
        )
        await asyncio.gather(*(client.cancel(run_id, at=1) for run_id in run_ids))
        seen = await asyncio.gather(*(one.read_to_end(within=60) for one in followers))
    logs = await cluster.stored_runs.logs(run_ids)
    for run_id, events, follower in zip(run_ids, seen, followers, strict=True):
        check_delivery(events, logs[run_id])
        assert follower.connected >= 2, "it was never cut, so nothing was proven"
        assert ticked(FOREVER["ticks"]).startswith(said_in(after_last_start(logs[run_id])))
    await cluster.stored_runs.check(run_ids, ends="cancelled")


@case("E2", "E4")
@rule("RX-33", "RX-34", "RX-48")
async def test_resuming_at_any_event_on_the_other_instance_gives_the_rest(cluster: Cluster) -> None:
    calls = [call("gsv__Echo", value=number) for number in range(20)]
    async with cluster.client() as client:
        run_id = await client.start(script(*calls))
        whole = await client.follower(run_id, at=[0]).read_to_end(within=60)
        log = await cluster.stored_runs.log(run_id)
        check_delivery(whole, log)
        for row in log[:-1]:  # internal events are cursors too
            by_header = client.follower(run_id, at=[row.seq % 2], after=row.seq)
            by_query = client.follower(run_id, at=[(row.seq + 1) % 2], after=row.seq, by="query")
            for follower in (by_header, by_query):
                check_delivery(await follower.read_to_end(within=30), log, after=row.seq)


@case("E3")
@pytest.mark.soak
@rule("RX-48")
async def test_stream_cut_after_any_byte_is_completed_by_the_other_instance(cluster: Cluster) -> None:
    async with cluster.client() as client:
        run_id = await client.start("noop", at=0)
        await client.follower(run_id).read_to_end(within=60)
        log = await cluster.stored_runs.log(run_id)
        with Proxy.before(client.base_urls[0]) as network:
            through_proxy = [network.url(client.base_urls[0]), client.base_urls[1]]
            cuts = range(1, MAX_BYTES, BYTES_APART)
            network.cut_in_turn(cuts)
            followers = [Follower(through_proxy, run_id, client.token) for _ in cuts]
            seen = await spread(
                [functools.partial(one.read_to_end, within=60) for one in followers], at_once=20
            )
    for events in seen:
        check_delivery(events, log)
    resumed = [one for one in followers if one.connected + one.refused > 1]
    assert len(cuts) / 4 < len(resumed) < len(cuts), "the cuts do not reach from the first byte to the last"


@case("E7")
@rule("RX-35")
async def test_done_is_sent_exactly_once_to_early_and_late_readers(cluster: Cluster) -> None:
    async with cluster.client() as client:

        async def race(number: int) -> str:
            """Connect readers while the run ends, and one after its end."""
            run_id = await client.start("noop", at=number % 2)
            readers = [client.follower(run_id, at=[index]) for index in (0, 1, number % 2)]
            racing = await asyncio.gather(*(one.read_to_end(within=60) for one in readers[:2]))
            late = await readers[2].read_to_end(within=60)
            assert racing[0] == racing[1] == late
            assert all(one.connected == 1 and one.ended_in_order for one in readers)
            assert [event.type for event in late].count("done") == 1
            async with Stream.open(client.base_urls[0], run_id, client.token, after=late[-1].seq) as stream:
                assert stream.status == 204
            return run_id

        run_ids: list[str] = []
        for _ in range(10):
            run_ids += await asyncio.gather(*(race(number) for number in range(20)))
    await cluster.stored_runs.check(run_ids)


@case("J10")
@rule("RX-31")
async def test_fifty_posts_with_one_key_on_two_instances_make_one_run(cluster: Cluster) -> None:
    refused_after: list[float] = []
    async with cluster.client() as client:
        for _ in range(5):
            session_id, key = new_session(), new_session()
            responses = await asyncio.gather(
                *(client.ask(session_id, "noop", key=key, at=number % 2) for number in range(50))
            )
            assert {response.status_code for response in responses} == {202}
            assert len({response.text for response in responses}) == 1
            assert (
                await cluster.stored_runs.value("select count(*) from runs where session_id = $1", session_id)
                == 1
            )
            asked = Stopwatch()
            other = await client.ask(session_id, "another message", key=key, at=1)
            refused_after.append(asked.seconds)
            assert other.status_code == 409, other.text
            assert other.json()["error"]["name"] == "IDEMPOTENCY_CONFLICT"
    check_each(refused_after, REFUSED_WITHIN_SECONDS, "a refusal needs no more time than an answer")


async def test_runs_of_one_session_are_executed_in_order(cluster: Cluster) -> None:
    session_id = new_session()
    async with cluster.client() as client:
        run_ids = [
            await client.start(script(wait_ms(20), say(str(number))), session_id=session_id, at=number % 2)
            for number in range(12)
        ]
        await cluster.stored_runs.wait_until_all_ended(run_ids, within=60)
    logs = await cluster.stored_runs.logs(run_ids)
    await cluster.stored_runs.check(
        run_ids, says={run_id: str(number) for number, run_id in enumerate(run_ids)}
    )
    for earlier, later in itertools.pairwise(run_ids):
        assert logs[earlier][-1].at <= starts_in(logs[later])[0].at


@case("J9")
@rule("RX-12", "RX-27")
async def test_run_is_cancelled_mid_stream_from_the_other_instance(cluster: Cluster) -> None:
    took: list[float] = []
    async with cluster.client() as client:
        for _ in range(TIMED):
            run_id = await client.start(script(FOREVER), at=0)
            follower = client.follower(run_id, at=[0])
            await follower.read_until(lambda event: event.type == "message.delta", within=60)
            asked = Stopwatch()
            assert (await client.cancel(run_id, at=1)).status_code == 202
            events = await follower.read_to_end(within=30)
            took.append(asked.seconds)
            assert (await client.cancel(run_id, at=0)).status_code == 409
            assert events[-1].data["status"] == "cancelled"
            check_delivery(events, await cluster.stored_runs.log(run_id))
            await cluster.stored_runs.check([run_id], ends="cancelled")
    check_each(took, CANCELLED_WITHIN_SECONDS, "cancelled")


@case("J9")
@rule("RX-12", "RS-37")
async def test_run_cancelled_before_its_claim_never_starts(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    apis = launcher.ready(launcher.api(), launcher.api())
    async with Client(*apis) as client:
        run_ids = await asyncio.gather(*(client.start(A_STORY) for _ in range(20)))
        answers = await asyncio.gather(*(client.cancel(run_id, at=1) for run_id in run_ids))
        assert {answer.status_code for answer in answers} == {202}
        assert {(await client.run(run_id))["status"] for run_id in run_ids} == {"cancelled"}
        launcher.worker()
        last = await client.start("noop")
        await client.wait_for(last, within=60)  # the worker is running and has polled the queue
        seen = await follow(client.base_urls, run_ids[0], client.token, within=30)
    assert [event.type for event in seen] == ["run.status", "done"]
    await stored_runs.check(run_ids, ends="cancelled")
    assert not any(starts_in(log) for log in (await stored_runs.logs(run_ids)).values())


@case("J9")
@rule("RX-27")
async def test_cancel_inside_a_long_tool_stops_its_child_process(cluster: Cluster, tmp_path: Path) -> None:
    took: list[float] = []
    async with cluster.client() as client:
        for number in range(TIMED):
            note = tmp_path / f"child-{number}"
            run_id = await client.start(script(call("test__HoldChild", pid_file=str(note))), at=0)
            await asyncio.to_thread(wait_for_sync, note.exists, within=60, what="the tool has its child")
            child = psutil.Process(json.loads(note.read_text())["pid"])
            asked = Stopwatch()
            assert (await client.cancel(run_id, at=1)).status_code == 202
            await client.wait_for(run_id, within=30)
            await asyncio.to_thread(
                wait_for_sync, lambda child=child: not child.is_running(), within=30, what="the child is gone"
            )
            took.append(asked.seconds)
            await cluster.stored_runs.check([run_id], ends="cancelled")
    check_each(took, CANCELLED_WITHIN_SECONDS, "cancelled")


@contextlib.asynccontextmanager
async def gate(
    stored_runs: StoredRuns, session_ids: list[str]
) -> AsyncIterator[Callable[[int], Awaitable[float]]]:
    """Block ending and cancelling runs of these sessions inside the block; yields a function that waits for
    that many blocked cancels.

    A cancel waits for the lock of the session's row. An end skips a locked row and tries again within a tenth
    of a second.
    """
    connection = await asyncpg.connect(stored_runs.database_url)

    async def trying(count: int) -> bool:
        waiting = (
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = "
            "'Lock'"
        )
        return await stored_runs.value(waiting) >= count

    try:
        async with connection.transaction():
            await connection.fetch(
                "select 1 from sessions where session_id = any($1) order by session_id for update",
                session_ids,
            )
            yield lambda count: wait_for(lambda: trying(count), within=60, what=f"{count} wait at the gate")
    finally:
        await connection.close()


@case("J9")
@pytest.mark.soak
@rule("RX-27", "RX-28")
@pytest.mark.parametrize("first", ["the end", "the cancel"])
async def test_cancel_that_races_the_end_gives_one_outcome(cluster: Cluster, first: str) -> None:
    """The runs try to end while their sessions are locked. Cancels wait for the same locks, or are sent one
    after another when the locks are released. Whichever wins, the log, the row and the answer agree.
    """
    outcomes: dict[str, str] = {}
    answers: Counter[int] = Counter()
    rounds, pause = 0, 0.3
    async with cluster.client() as client:

        async def cancel_after(seconds: float, run_id: str, at: int) -> httpx2.Response:
            await asyncio.sleep(seconds)
            return await client.cancel(run_id, at=at)

        for _ in range(MAX_ROUNDS):
            sessions = [new_session() for _ in range(AT_ONCE)]
            message = script(wait_ms(round(pause * 1000)))  # without text: the first append is the end
            began = time.monotonic()
            run_ids = await asyncio.gather(
                *(client.start(message, session_id=session) for session in sessions)
            )
            cancels: list[asyncio.Task[httpx2.Response]] = []
            async with gate(cluster.stored_runs, sessions) as until_trying:
                if set((await cluster.stored_runs.statuses(run_ids)).values()) & TERMINAL:
                    # Some had ended before the gate was closed: there is no race for them.
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
                    continue
                is_in_order = True
                if first == "the cancel":
                    cancels = [
                        asyncio.create_task(client.cancel(run_id, at=number % 2))
                        for number, run_id in enumerate(run_ids)
                    ]
                    await until_trying(AT_ONCE)
                    is_in_order = time.monotonic() < began + pause  # no run can have ended by then
                await asyncio.sleep(max(0.0, began + pause + RETRY_SECONDS - time.monotonic()))
            if first == "the end":
                cancels = [
                    asyncio.create_task(
                        cancel_after(number / AT_ONCE * 4 * RETRY_SECONDS, run_id, number % 2)
                    )
                    for number, run_id in enumerate(run_ids)
                ]
            answered = [await cancel for cancel in cancels]
            seen = await asyncio.gather(
                *(client.follower(run_id).read_to_end(within=60) for run_id in run_ids)
            )
            outcomes |= {
                run_id: events[-1].data["status"] for run_id, events in zip(run_ids, seen, strict=True)
            }
            assert {answer.json()["error"]["name"] for answer in answered if answer.status_code == 409} <= {
                "RUN_FINISHED"
            }
            # A request that was answered "too late" was answered correctly.
            assert {
                outcomes[run]
                for run, answer in zip(run_ids, answered, strict=True)
                if answer.status_code == 409
            } <= {"completed"}
            if not is_in_order:
                pause = min(1.5 * pause, MAX_PAUSE_SECONDS)
                continue
            answers.update(answer.status_code for answer in answered)
            rounds += 1
            if rounds == RACES // AT_ONCE:
                break
    assert rounds == RACES // AT_ONCE, (
        f"on this machine {first} does not come first often enough, even with {pause} s to arrange it"
    )
    assert set(answers) <= {202, 409}
    assert answers[409 if first == "the end" else 202] >= RACES // AT_ONCE, (
        f"{first} did not come first: {answers}"
    )
    assert set(outcomes.values()) <= {"completed", "cancelled"}
    await cluster.stored_runs.check(list(outcomes), ends=outcomes)
