"""A tool call through the gateway to a node and back: from the client's request to its answer, against the round trip of a bare echo.

The least that such a call can cost is two round trips, one from the client and one to the node. The node is a bare one in a process of
its own, and the call is a verb of the bench's: what a canvas stores around an action is measured with the actions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_most, median, percentile
from bench.measurements.canvases import ask, gateway, socket_to
from bench.processes import bench_module, child

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from bench.setting import Setting

ROUNDS = 5
WARM_UP = 100


async def node_calls(setting: Setting) -> list[Figure]:
    """A tool call through the gateway to a node and back, against the round trip of a bare echo."""
    count = setting.size(1_000, 100)
    ours: list[float] = []
    floor: list[float] = []
    async with (
        child(bench_module("floors.echo"), name="floor-echo", folder=setting.folder) as echo,
        easel_processes.up(setting, module="bench.calling_easel") as easel,
        child(
            bench_module("floors.node", easel.server.url.replace("http", "ws", 1) + "/ws", easel_processes.TOKEN),
            name="bare-node",
            folder=setting.folder,
        ) as node,
    ):
        await node.line("ready")
        port = int((await echo.line(r":(\d+)\b"))[1])
        async with gateway(easel.server.url, easel_processes.TOKEN) as client, socket_to(f"ws://127.0.0.1:{port}/ws") as bare:
            for turn in range(setting.size(ROUNDS, 2)):
                calls, echoes = await _calls(client, WARM_UP + count), await _echoes(bare, WARM_UP + count)
                ours += calls[WARM_UP:]
                floor += echoes[WARM_UP:]
                setting.say(f"round {turn + 1}: call {median(calls) * 1e6:.0f} µs, echo {median(echoes) * 1e6:.0f} µs")
    return [
        at_most("node tool call through the gateway, p50", median(ours) * 1e3, median(floor) * 1e3, unit="ms", bar=3, against="echo"),
        at_most(
            "node tool call through the gateway, p99",
            percentile(ours, 0.99) * 1e3,
            percentile(floor, 0.99) * 1e3,
            unit="ms",
            bar=None,
            against="echo",
        ),
    ]


async def _calls(client: ClientConnection, count: int) -> list[float]:
    took: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        answer = await ask(client, "bench.call", tool="bare__Echo", args={"n": number})
        took.append(time.perf_counter() - began)
        if answer != {"n": number}:
            raise RuntimeError(f"the node answered {answer}")
    return took


async def _echoes(bare: ClientConnection, count: int) -> list[float]:
    took: list[float] = []
    frame = '{"type":"req","id":"1","method":"bench.call","params":{"tool":"bare__Echo","args":{"n":1}}}'
    for _ in range(count):
        began = time.perf_counter()
        await bare.send(frame)
        await bare.recv()
        took.append(time.perf_counter() - began)
    return took
