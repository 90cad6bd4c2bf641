"""Streams never mix: each event reaches exactly the transports that its stream allows, in order, once, on
every instance.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from easel.stores.postgres import open_postgres
from tests.journeys.client import call, new_session, say, script, spread, ticks
from tests.journeys.mixed_expectations import (
    Truth,
    as_received,
    check_marker,
    check_no_pixels,
    check_nothing_encoded,
    everything_stored,
    received_tuples,
)
from tests.journeys.mixed_load import EVERYTHING, Load
from tests.journeys.mixed_watchers import INTERNAL, NARRATIVE, STATE, TRANSPORTS, VISUALS, Network, Watcher
from tests.journeys.soak import SECONDS, short_or_full
from tests.requirements import case, rule
from tests.support.chat import Chat, ChatFollower, ChatRefused, Complaint
from tests.support.sse import Event, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.journeys.client import Client
    from tests.journeys.conftest import Cluster

LOAD_SECONDS = short_or_full(8.0, SECONDS)
SETTLE_SECONDS = 60.0
SEED = int(os.environ.get("JOURNEY_SEED") or (2026 if "CI" in os.environ else random.randrange(10**6)))


def errors_of(cluster: Cluster) -> list[str]:
    return [
        line
        for process in cluster.launcher.started
        for line in process.output().splitlines()
        if "[error" in line
    ]


async def bad_weather(cluster: Cluster, network: Network, chance: random.Random) -> None:
    """Reset connections, kill an API, kill a worker; each is restarted at once."""
    for kind in ("network", "api", "network", "worker", "network"):
        await asyncio.sleep(LOAD_SECONDS / 6)
        if kind == "network":
            network.reset_everything()
            continue
        group = cluster.apis if kind == "api" else cluster.workers
        chance.choice(group).kill()
        await asyncio.to_thread(cluster.bring_back)


async def settle(load: Load, cluster: Cluster) -> Truth:
    """Wait until all runs have ended and every watcher has read its log to the end."""
    while True:
        truth = await Truth.read(cluster.stored_runs, load.sessions, load.canvases)
        await cluster.stored_runs.wait_until_all_ended(list(truth.runs), within=SETTLE_SECONDS)
        truth = await Truth.read(cluster.stored_runs, load.sessions, load.canvases)
        watchers = list(load.watchers)
        ends = [truth.expected(watcher.transport, watcher.name)[-1:] for watcher in watchers]
        await asyncio.gather(
            *(
                one.reach(end[0].seq, within=SETTLE_SECONDS)
                for one, end in zip(watchers, ends, strict=True)
                if end
            )
        )
        if len(load.watchers) == len(watchers):  # a run without a watcher was not counted yet
            return truth


def check_watchers(watchers: Sequence[Watcher], truth: Truth) -> None:
    """Check that no watcher missed, repeated or mixed up events, or received one that it may not see."""
    for watcher in watchers:
        expected = [as_received(row) for row in truth.expected(watcher.transport, watcher.name)]
        got = received_tuples(watcher.events)
        if got != expected:
            differing = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), None)
            raise AssertionError(
                f"{watcher} saw {len(got)} of {len(expected)} events; first other than expected: {differing}"
            )
    for transport in TRANSPORTS:
        mine = [watcher for watcher in watchers if watcher.transport is transport]
        served = sum((watcher.served_by for watcher in mine), Counter[int]())
        again = sum(sum(watcher.connected.values()) - 1 for watcher in mine)
        print(f"{transport.name}: {len(mine)} watchers, {again} resumed, served by {dict(served)}")
        assert min(served[0], served[1]) > 0, f"{transport.name} was served by one instance only"
        assert again > len(mine) / 2, f"{transport.name} was hardly ever cut"


def check_older_clients(load: Load, truth: Truth) -> None:
    """Check that `POST /api/chat` showed the run's public log from its start, as far as its reader stayed."""
    run = TRANSPORTS[0]
    for run_id, events in load.older_clients:
        expected = [as_received(row) for row in truth.expected(run, run_id)]
        assert received_tuples(events) == expected[: len(events)], run_id
    assert any(events and events[-1].type == "done" for _, events in load.older_clients)


async def check_ends(client: Client, watchers: Sequence[Watcher]) -> None:
    """Check that a stream after its `done` has nothing more, on any instance."""

    async def ask(watcher: Watcher) -> int:
        path = watcher.transport.path.format(watcher.name)
        async with Stream.at(
            watcher.chance.choice(client.base_urls), path, client.token, after=watcher.cursor
        ) as stream:
            return stream.status

    of_runs = [watcher for watcher in watchers if watcher.transport.kind == "run"]
    assert {watcher.events[-1].type for watcher in of_runs} == {"done"}
    assert set(await spread([lambda one=one: ask(one) for one in of_runs], at_once=8)) == {204}


async def check_references(client: Client, load: Load, truth: Truth, chance: random.Random) -> None:
    """Check that offloaded values can be read back exactly, and that pictures exist in artifacts only. CC-08,
    CC-24, CC-26
    """
    markers = truth.markers()
    assert markers, "nothing was heavy"

    async def fetch(uri: str) -> bytes:
        answer = await client.get(uri, at=chance.randrange(2))
        assert answer.status_code == 200, answer.text
        return answer.content

    for uri, content in zip(
        markers, await spread([lambda uri=uri: fetch(uri) for uri in markers], at_once=8), strict=True
    ):
        check_marker(markers[uri], content)
    for canvas in load.canvases:
        for row in truth.logs["canvas", canvas]:
            if row.type == "canvas.snapshot":
                (sidecar,) = row.data["media_payload"]["sidecars"]
                assert sidecar["artifact_id"] == row.data["artifact_id"]
                assert await fetch(sidecar["uri"]) == load.pictures[sidecar["checksum"]]


async def check_system(cluster: Cluster, truth: Truth) -> None:
    """Check that records of the audit chain appear nowhere else. CC-05, CC-13, RS-06"""
    actions = {row["action"] for row in await cluster.stored_runs.fetch("select distinct action from audit")}
    assert "canvas.created" in actions
    system_actions = actions - {"canvas.created"}  # the creation itself is public
    assert system_actions
    assert system_actions.isdisjoint(
        truth.types_in("run") | truth.types_in("thread") | truth.types_in("canvas")
    )


@case("E11")
@rule("CC-02", "CC-03", "CC-07", "CC-09", "CC-13", "CC-29", "CC-31", "CC-32")
@rule(
    "RS-01",
    "RS-02",
    "RS-03",
    "RS-04",
    "RS-05",
    "RS-06",
    "RS-34",
    "RS-36",
    "CC-08",
    "CC-23",
    "CC-24",
    "CC-25",
    "CC-26",
)
@pytest.mark.soak
@pytest.mark.timeout(400 + LOAD_SECONDS)
async def test_each_event_reaches_exactly_the_transports_of_its_stream(cluster: Cluster) -> None:
    print(f"JOURNEY_SEED={SEED}")
    chance = random.Random(SEED)
    async with cluster.client() as client:
        with Network.around(client, chance) as network:
            load = Load(network, chance, sessions=5, canvases=2)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(load.go_on(LOAD_SECONDS))
                    both.create_task(bad_weather(cluster, network, chance))
                began = time.monotonic()
                truth = await settle(load, cluster)
                print(f"settled in {time.monotonic() - began:.1f} s")
            finally:
                await load.close()
        print(
            dict(load.did), f"{len(truth.runs)} runs", Counter(run["status"] for run in truth.runs.values())
        )
        truth.check_numbers()
        truth.check_events()
        check_watchers(load.watchers, truth)
        check_older_clients(load, truth)
        await check_ends(client, load.watchers)
        await check_references(client, load, truth, chance)
    await check_system(cluster, truth)
    assert errors_of(cluster) == [], "no cut connection is an error of ours"
    said = [(process.log.name, process.output()) for process in cluster.launcher.started]
    stored = await everything_stored(cluster.stored_runs)
    check_nothing_encoded([*stored, *said], load.inventor.planted)
    check_no_pixels([*stored, *said], load.pictures.values())
    # Check that the load was complete: every kind of operation happened.
    assert truth.types_in("run") == NARRATIVE | STATE
    assert truth.types_in("thread") == NARRATIVE >= INTERNAL
    assert truth.types_in("canvas") == VISUALS
    assert all(load.did[what] for what in EVERYTHING), load.did


# --- the cursor of a chat -----------------------------------------------------------------------------------

CALLS = [call("gsv__Echo", value={"answer": number}) for number in range(8)]  # two events each, at any pace
A_TALK = script({"think": "hm"}, say("First. "), *CALLS, ticks(40, 15), say("Last."))


async def finish(cluster: Cluster, client: Client, session_id: str, message: str) -> None:
    await cluster.stored_runs.wait_until_all_ended(
        [await client.start(message, session_id=session_id)], within=60
    )


async def refusal(base_url: str, thread_id: str, token: str | None, **how: Any) -> ChatRefused:
    with pytest.raises(ChatRefused) as refused:
        async with Chat.open(base_url, thread_id, token, **how):
            pass
    return refused.value


@case("E5")
@rule("RS-34", "CC-29")
async def test_chat_cursor_that_is_not_in_the_thread_is_refused(cluster: Cluster) -> None:
    thread, unborn = new_session(), new_session()
    async with cluster.client() as client:
        await finish(cluster, client, thread, A_TALK)
        head = await cluster.stored_runs.value(
            "select last_thread_seq from sessions where session_id = $1", thread
        )
        for url in client.base_urls:
            for cursor in (
                "-1",
                "x",
                "1.5",
                "1e3",
                "",
                " 1",
                "٣",
                "9223372036854775808",
                "1" * 1_000,
                "run_x",
            ):
                answer = await refusal(url, thread, client.token, after=cursor)
                assert (answer.status, answer.error["name"]) == (400, "BAD_INPUT"), cursor
            for size in (10_000, 50_000):  # longer than a header line may be
                answer = await refusal(url, thread, client.token, after="1" * size)
                assert answer.status in (400, 414), size
            for name, newest, cursor in ((thread, head, head + 1), (thread, head, 2**63 - 1), (unborn, 0, 1)):
                answer = await refusal(url, name, client.token, after=cursor)
                assert (answer.status, answer.error["name"]) == (410, "CURSOR_OUT_OF_RANGE")
                assert answer.error["details"] == {"cursor": cursor, "oldest": 1, "newest": newest}


@rule("RS-34")
async def test_chat_cursor_below_the_retained_events_is_refused(cluster: Cluster) -> None:
    thread = new_session()
    async with cluster.client() as client:
        await finish(cluster, client, thread, A_TALK)
        database = await open_postgres(cluster.stored_runs.database_url, pool=1)
        try:
            while await database.runs.prune(
                -1
            ):  # retention does this to every run that has ended, some at a time
                pass
        finally:
            await database.close()
        await finish(cluster, client, thread, "noop")
        (row,) = await cluster.stored_runs.fetch(
            "select oldest_thread_seq, last_thread_seq from sessions where session_id = $1", thread
        )
        oldest, newest = row
        assert 1 < oldest < newest
        for url in client.base_urls:
            answer = await refusal(url, thread, client.token, after=oldest - 2)
            assert answer.status == 410
            assert answer.error["details"] == {"cursor": oldest - 2, "oldest": oldest, "newest": newest}
            for after in (None, oldest - 1):
                follower = ChatFollower([url], thread, client.token, after=after or 0, debug=False)
                await follower.read_until(lambda event: event.seq == newest, within=30)
                await follower.close()
                assert [event.seq for event in follower.events] == list(range(oldest, newest + 1))


@rule("CC-29", "RS-03", "RS-34")
async def test_thread_that_does_not_exist_is_empty_and_its_first_message_creates_it(
    cluster: Cluster,
) -> None:
    thread = new_session()
    async with cluster.client() as client:
        others = [ChatFollower([url], thread, client.token) for url in client.base_urls]
        async with Chat.open(client.base_urls[0], thread, client.token, after=0) as chat:
            assert (await client.get(f"/api/sessions/{thread}", at=1)).status_code == 404, (
                "looking creates nothing"
            )
            await chat.send("not JSON")
            complaint = await asyncio.wait_for(chat.hear(), 30)
            assert isinstance(complaint, Complaint)
            assert complaint.name == "BAD_INPUT"
            await chat.say(script(say("Here I am.")))
            for follower in others:
                last = await follower.read_until(
                    lambda event: event.data.get("role") == "assistant", within=60
                )
                await follower.close()
                assert last.data["text"] == "Here I am."
                assert follower.events[0].data["role"] == "user"
                assert [event.seq for event in follower.events] == [1, 2, 3]
            heard = [await asyncio.wait_for(chat.hear(), 30) for _ in range(3)]
        assert heard == others[0].events == others[1].events
        answer = await client.get(f"/api/sessions/{thread}", at=1)
        assert (answer.status_code, answer.json()["last_seq"]) == (200, 3)


@case("E2")
@rule("RS-34", "CC-29", "RS-03")
@pytest.mark.parametrize("debug", [False, True], ids=["as it is", "with debug"])
async def test_chat_changes_instances_in_the_middle_of_a_run_and_loses_nothing(
    cluster: Cluster, debug: bool
) -> None:
    thread = new_session()
    transport = next(one for one in TRANSPORTS if one.kind == "thread" and one.debug is debug)
    async with cluster.client() as client:
        walker = ChatFollower(client.base_urls, thread, client.token, debug=debug)
        await client.start(A_TALK, session_id=thread)
        hops = 0
        while not walker.events or walker.events[-1].data.get("role") != "assistant":
            hops += 1
            async with Chat.open(
                client.base_urls[hops % 2], thread, client.token, after=walker.cursor, debug=debug
            ) as chat:
                for _ in range(hops % 3 + 1):
                    heard = await asyncio.wait_for(chat.hear(), 30)
                    assert isinstance(heard, Event)
                    walker.take(heard)
                    if heard.data.get("role") == "assistant":
                        break
        truth = await Truth.read(cluster.stored_runs, [thread], [])
        expected = truth.expected(transport, thread)
        assert received_tuples(walker.events) == [as_received(row) for row in expected]
        assert hops > 5
        for number, row in enumerate(truth.logs["thread", thread][:-1]):  # internal events are cursors too
            late = ChatFollower(
                [client.base_urls[number % 2]], thread, client.token, after=row.seq, debug=False
            )
            await late.read_until(lambda event: event.seq == expected[-1].seq, within=30)
            await late.close()
            assert received_tuples(late.events) == [
                as_received(other)
                for other in expected
                if other.seq > row.seq and other.visibility == "public"
            ]


async def test_oversized_frame_closes_the_chat_and_loses_nothing(cluster: Cluster) -> None:
    """While events are being sent to the client that sent the frame."""
    thread = new_session()

    async def shout(base_url: str, token: str) -> int | None:
        async with Chat.open(base_url, thread, token) as chat:
            with contextlib.suppress(EOFError):
                await chat.send("x" * 2_000_000)
            async with asyncio.timeout(60):
                while await chat.hear() is not None:
                    pass
            return chat.close_code

    async with cluster.client() as client:
        await finish(
            cluster,
            client,
            thread,
            script(*({"think": "hm"} if number % 2 else say("word ") for number in range(600))),
        )
        codes = set(
            await asyncio.gather(*(shout(client.base_urls[number % 2], client.token) for number in range(40)))
        )
        # A connection that is reset for its unread bytes may lose the close frame.
        assert 1009 in codes
        assert codes <= {1006, 1009}
    assert errors_of(cluster) == []


STRANGERS = [
    # says                                   token      with
    # status
    ("no token",                             None,      {},                                        401),
    ("a wrong token",                        "wrong",   {},                                        401),
    ("a wrong cookie",                       None,      {"Cookie": "easel=9999999999.00"},         401),
    ("another site, and the right token",    "right",   {"origin": "https://evil.example"},        403),
    ("no site at all, and the right token",  "right",   {"origin": "null"},                        403),
    ("another site, and no token",           None,      {"origin": "https://evil.example"},        403),
]  # fmt: skip


@case("O7")
@rule("CC-29")
@pytest.mark.parametrize(
    "token, how, status", [row[1:] for row in STRANGERS], ids=[row[0] for row in STRANGERS]
)
async def test_chat_refuses_a_client_without_access_to_its_thread(
    cluster: Cluster, token: str | None, how: dict[str, str], status: int
) -> None:
    thread = new_session()
    async with cluster.client() as client:
        await finish(cluster, client, thread, "noop")
        given = client.token if token == "right" else token
        for url in client.base_urls:
            for name in (thread, new_session()):
                answer = await refusal(url, name, given, **how)
                assert answer.status == status
                assert answer.error["name"] == {401: "NOT_SIGNED_IN", 403: "FORBIDDEN"}[status]
                assert thread not in answer.body.decode()
            async with Chat.open(
                url, thread, client.token, origin=url
            ) as chat:  # with access and from our own page it is accepted
                assert isinstance(await asyncio.wait_for(chat.hear(), 30), Event)
