"""Canvas actions: one after another against a bare echo and a bare commit, and many at once with many
viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_least, at_most, median, percentile
from bench.gateway import REQUEST_NUMBERS, ask, gateway, socket_to
from bench.processes import bench_module, child

if TYPE_CHECKING:
    from pathlib import Path

    from websockets.asyncio.client import ClientConnection

    from bench.setting import Setting

ROUNDS = 3
SPEC = {
    "version": 1,
    "state": {"n": 0, "who": "somebody"},
    "actions": {"set": {"kind": "state.patch", "patch": [{"op": "replace", "path": "/n", "value": 1}]}},
}
CANVASES, VIEWERS, RATE = 100, 20, 50
IDLE_ACTIONS = 200
IN_FLIGHT = 8


async def actions(setting: Setting) -> list[Figure]:
    """state.patch actions over one /ws connection, durable on SQLite, against a bare echo plus a
    bare commit.
    """
    count = setting.size(600, 100)
    ours: list[float] = []
    together: list[float] = []
    floor: list[float] = []
    async with (
        child(bench_module("floors.echo"), name="floor-echo", folder=setting.folder) as echo,
        easel_processes.up(setting) as easel,
    ):
        port = int((await echo.line(r":(\d+)\b"))[1])
        async with (
            gateway(easel.server.url, easel_processes.TOKEN) as client,
            socket_to(f"ws://127.0.0.1:{port}/ws") as bare,
        ):
            await ask(client, "canvas.create", canvasId="c", spec=SPEC)
            for turn in range(setting.size(ROUNDS, 1)):
                commit = await asyncio.to_thread(_commit_seconds, setting.folder / f"bare-{turn}.db", count)
                round_trip = await _echo_seconds(bare, count)
                ours.append(count / await _pressing_seconds(client, count))
                together.append(count / await _pressing_together_seconds(client, count))
                floor.append(1 / (commit + round_trip))
                setting.say(
                    f"round {turn + 1}: ours {ours[-1]:,.0f}/s; echo {round_trip * 1e6:.0f} µs + commit "
                    f"{commit * 1e6:.0f} µs"
                )
    return [
        at_least(
            "state.patch actions, one after another",
            median(ours),
            median(floor),
            unit="/s",
            bar=0.5,
            against="echo + commit",
        ),
        at_least(
            "state.patch actions, 8 in flight",
            median(together),
            median(floor),
            unit="/s",
            bar=0.5,
            against="echo + commit",
        ),
    ]


async def busy_canvases(setting: Setting) -> list[Figure]:
    """100 canvases with 20 viewers each and 50 actions a second: from the request to its answer, p99, against
    the idle p50.
    """
    canvases, viewers, seconds = setting.size(CANVASES, 10), setting.size(VIEWERS, 4), setting.size(10, 2)
    async with (
        easel_processes.up(setting, MAX_STREAMS="5000", GATEWAY_SUBSCRIPTIONS="200") as easel,
        contextlib.AsyncExitStack() as stack,
    ):
        url = easel.server.url
        client = await stack.enter_async_context(gateway(url, easel_processes.TOKEN, "presser"))
        for number in range(canvases):
            await ask(client, "canvas.create", canvasId=f"c{number}", spec=SPEC)
        idle = [await _timed(client, "c0") for _ in range(IDLE_ACTIONS)]
        heard = [0]
        for viewer in range(viewers):
            watching = await stack.enter_async_context(
                gateway(url, easel_processes.TOKEN, f"viewer-{viewer}")
            )
            for number in range(canvases):
                await ask(watching, "canvas.subscribe", canvasId=f"c{number}")
            reading = asyncio.create_task(_count(watching, heard))
            stack.callback(reading.cancel)
        pressing = [
            await stack.enter_async_context(gateway(url, easel_processes.TOKEN, f"presser-{lane}"))
            for lane in range(8)
        ]
        free: asyncio.Queue[ClientConnection] = asyncio.Queue()
        for lane in pressing:
            free.put_nowait(lane)
        took: list[float] = []

        async def press(number: int, due: float) -> None:
            lane = await free.get()
            await ask(lane, "canvas.action", canvasId=f"c{number % canvases}", actionId="set")
            took.append(time.perf_counter() - due)  # from its due time, so that a queue of ours would count
            free.put_nowait(lane)

        began, tasks = time.perf_counter(), list[asyncio.Task[None]]()
        for number in range(RATE * seconds):
            due = began + number / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(press(number, due)))
        await asyncio.gather(*tasks)
        wanted = 3 * viewers * len(took)  # started, updated, finished
        async with asyncio.timeout(30):
            while heard[0] < wanted:  # noqa: ASYNC110 - counted by other tasks
                await asyncio.sleep(0.05)
        setting.say(
            f"{len(took)} actions, {heard[0]:,} events to {canvases * viewers:,} viewers; p50 "
            f"{percentile(took, 0.5) * 1000:.1f} ms"
        )
    name = f"{canvases} canvases × {viewers} viewers, {RATE} actions/s, p99"
    return [
        at_most(
            name,
            percentile(took, 0.99) * 1000,
            percentile(idle, 0.5) * 1000,
            unit="ms",
            bar=10,
            against="idle p50",
        )
    ]


async def _timed(client: ClientConnection, canvas_id: str) -> float:
    began = time.perf_counter()
    await ask(client, "canvas.action", canvasId=canvas_id, actionId="set")
    return time.perf_counter() - began


async def _pressing_seconds(client: ClientConnection, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await ask(client, "canvas.action", canvasId="c", actionId="set")
    return time.perf_counter() - began


async def _pressing_together_seconds(client: ClientConnection, count: int) -> float:
    """Time eight requests in flight on one connection, as a page does that does not wait for each answer."""
    began = time.perf_counter()
    for number in range(count + IN_FLIGHT):
        if number < count:
            request = {
                "id": str(next(REQUEST_NUMBERS)),
                "method": "canvas.action",
                "params": {"canvasId": "c", "actionId": "set"},
            }
            await client.send(json.dumps({"type": "req", **request}))
        if number >= IN_FLIGHT and not json.loads(await client.recv())["ok"]:
            raise RuntimeError("an action was refused")
    return time.perf_counter() - began


async def _echo_seconds(bare: ClientConnection, count: int) -> float:
    """Time a client that does the same as ours: it writes a request and reads an answer."""
    began = time.perf_counter()
    for number in range(count):
        asked = {
            "type": "req",
            "id": str(number),
            "method": "canvas.action",
            "params": {"canvasId": "c", "actionId": "set"},
        }
        await bare.send(json.dumps(asked))
        if json.loads(await bare.recv())["id"] != asked["id"]:
            raise RuntimeError("the echo said something else")
    return (time.perf_counter() - began) / count


def _commit_seconds(path: Path, count: int) -> float:
    """Time the commit of one row, as durable as ours: WAL, `synchronous=FULL`."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "pragma journal_mode = wal",
        "pragma synchronous = full",
        "create table rows (n integer primary key, text text)",
    ):
        connection.execute(statement)
    began = time.perf_counter()
    for number in range(count):
        connection.execute("insert into rows (n, text) values (?, ?)", (number, "x" * 200))
    took = (time.perf_counter() - began) / count
    connection.close()
    return took


async def _count(client: ClientConnection, heard: list[int]) -> None:
    async for text in client:
        heard[0] += '"type":"evt"' in str(text)
