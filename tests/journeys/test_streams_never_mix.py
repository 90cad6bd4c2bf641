"""Streams that never mix: each event reaches exactly the transports its stream allows, in order, once, on every instance."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import call, new_session, say, script, spread, ticked, ticks, wait_ms
from tests.journeys.mixing import INTERNAL, NARRATIVE, STATE, TRANSPORTS, VISUALS, Network, Watcher
from tests.journeys.mixing_load import Load
from tests.journeys.mixing_truth import Truth, as_seen, check_marker, check_nothing_encoded, everything_stored, seen
from tests.journeys.soak import IS_SOAK, SECONDS
from tests.requirements import case, rule
from tests.support.chat import Chat, ChatFollower, ChatRefused
from tests.support.sse import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.journeys.client import Client
    from tests.journeys.conftest import Cluster

LOAD_SECONDS = SECONDS if IS_SOAK else 12.0
SETTLE_SECONDS = 30.0
SEED = int(os.environ.get("JOURNEY_SEED") or (2026 if "CI" in os.environ else random.randrange(10**6)))


async def bad_weather(cluster: Cluster, network: Network, chance: random.Random) -> None:
    """Connections that are reset, an API that is killed, a worker that is killed; each comes back at once."""
    for kind in ("network", "api", "network", "worker", "network"):
        await asyncio.sleep(LOAD_SECONDS / 6)
        if kind == "network":
            network.reset_everything()
            continue
        group = cluster.apis if kind == "api" else cluster.workers
        chance.choice(group).kill()
        await asyncio.to_thread(cluster.bring_back)


async def settle(load: Load, cluster: Cluster) -> Truth:
    """All runs have ended, and every watcher has come as far as there is something for it to see."""
    while True:
        truth = await Truth.read(cluster.ledger, load.sessions, load.canvases)
        await cluster.ledger.wait_until_all_ended(list(truth.runs), within=SETTLE_SECONDS)
        truth = await Truth.read(cluster.ledger, load.sessions, load.canvases)
        watchers = list(load.watchers)
        ends = [truth.expected(watcher.transport, watcher.name)[-1:] for watcher in watchers]
        await asyncio.gather(*(one.reach(end[0].seq, within=SETTLE_SECONDS) for one, end in zip(watchers, ends, strict=True) if end))
        if len(load.watchers) == len(watchers):  # nobody heard of a run that nobody watches yet
            return truth


def check_watchers(watchers: Sequence[Watcher], truth: Truth) -> None:
    """Nobody missed, repeated, mixed up or overheard anything."""
    for watcher in watchers:
        expected = [as_seen(row) for row in truth.expected(watcher.transport, watcher.name)]
        got = seen(watcher.events)
        if got != expected:
            differing = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), None)
            raise AssertionError(f"{watcher} saw {len(got)} of {len(expected)} events; first other than expected: {differing}")
    for transport in TRANSPORTS:
        mine = [watcher for watcher in watchers if watcher.transport is transport]
        served = sum((watcher.served_by for watcher in mine), Counter[int]())
        again = sum(sum(watcher.connected.values()) - 1 for watcher in mine)
        print(f"{transport.name}: {len(mine)} watchers, {again} resumed, served by {dict(served)}")
        assert min(served[0], served[1]) > 0, f"{transport.name} was served by one instance only"
        assert again >= len(mine), f"{transport.name} was hardly ever cut"


def check_older_clients(load: Load, truth: Truth) -> None:
    """`POST /api/chat` shows the run's public log from its start, as far as its reader stayed."""
    run = TRANSPORTS[0]
    for run_id, events in load.older_clients:
        expected = [as_seen(row) for row in truth.expected(run, run_id)]
        assert seen(events) == expected[: len(events)], run_id
    assert any(events and events[-1].type == "done" for _, events in load.older_clients)


async def check_ends(client: Client, watchers: Sequence[Watcher]) -> None:
    """A stream that has shown its `done` has nothing more, on any instance."""

    async def ask(watcher: Watcher) -> int:
        path = watcher.transport.path.format(watcher.name)
        async with Stream.at(watcher.chance.choice(client.base_urls), path, client.token, after=watcher.cursor) as stream:
            return stream.status

    of_runs = [watcher for watcher in watchers if watcher.transport.kind == "run"]
    assert {watcher.events[-1].type for watcher in of_runs} == {"done"}
    assert set(await spread([lambda one=one: ask(one) for one in of_runs], at_once=8)) == {204}


async def check_references(client: Client, load: Load, truth: Truth, chance: random.Random) -> None:
    """What was moved comes back exactly, and a picture is in its artifact and nowhere else. CC-08, CC-24, CC-26"""
    markers = truth.markers()
    assert markers, "nothing was heavy"

    async def fetch(uri: str) -> bytes:
        answer = await client.get(uri, at=chance.randrange(2))
        assert answer.status_code == 200, answer.text
        return answer.content

    for uri, content in zip(markers, await spread([lambda uri=uri: fetch(uri) for uri in markers], at_once=8), strict=True):
        check_marker(markers[uri], content)
    for canvas in load.canvases:
        for row in truth.logs["canvas", canvas]:
            if row.type == "canvas.snapshot":
                (sidecar,) = row.data["media_payload"]["sidecars"]
                assert sidecar["artifact_id"] == row.data["artifact_id"]
                assert await fetch(sidecar["uri"]) == load.pictures[sidecar["checksum"]]


async def check_system(cluster: Cluster, truth: Truth) -> None:
    """What the audit trail tells is told there only. CC-05, CC-13, RS-06"""
    actions = {row["action"] for row in await cluster.ledger.fetch("select distinct action from audit")}
    assert "canvas.created" in actions
    told = actions - {"canvas.created"}  # who made it is the system's, that it is there is for all to see
    assert told
    assert told.isdisjoint(truth.types_in("run") | truth.types_in("thread") | truth.types_in("canvas"))


@case("E11")
@rule("CC-02", "CC-03", "CC-07", "CC-09", "CC-13", "CC-29", "CC-31", "CC-32")
@rule("RS-01", "RS-02", "RS-03", "RS-04", "RS-05", "RS-06", "RS-34", "RS-36", "CC-08", "CC-23", "CC-24", "CC-25", "CC-26")
@pytest.mark.timeout(180 + LOAD_SECONDS)
async def test_each_event_reaches_exactly_the_transports_of_its_stream(cluster: Cluster) -> None:
    print(f"JOURNEY_SEED={SEED}")
    chance = random.Random(SEED)
    async with cluster.client() as client:
        with Network.around(client, chance) as network:
            load = Load(network, chance, sessions=4, canvases=2)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(load.go_on(LOAD_SECONDS))
                    both.create_task(bad_weather(cluster, network, chance))
                truth = await settle(load, cluster)
            finally:
                await load.close()
        print(dict(load.did), f"{len(truth.runs)} runs", Counter(run["status"] for run in truth.runs.values()))
        truth.check_numbers()
        truth.check_events()
        check_watchers(load.watchers, truth)
        check_older_clients(load, truth)
        await check_ends(client, load.watchers)
        await check_references(client, load, truth, chance)
    await check_system(cluster, truth)
    said = [(process.log.name, process.said()) for process in cluster.launcher.started]
    check_nothing_encoded([*await everything_stored(cluster.ledger), *said], load.inventor.planted)
    # The load was what it should be: everything that can happen did.
    assert truth.types_in("run") == NARRATIVE | STATE
    assert truth.types_in("thread") == NARRATIVE >= INTERNAL
    assert truth.types_in("canvas") == VISUALS
    assert all(load.did[what] for what in ("cancels", "board writes", "pictures", "_post", "_say", "_post_and_stream")), load.did
