"""A tool call to a node and back, against the round trip of a bare echo.

From the gateway to the node is one round trip, and that has the bar. From a client through the gateway to the
node it is two, in three processes: the least code for that, a bare relay, is measured beside it. The node is
a bare one in a process of its own, and the calls use the bench's own methods: the storage around an action is
measured with the actions.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from bench import easel_processes
from bench.figures import Figure, at_most, median, percentile
from bench.gateway import ask, gateway, socket_to
from bench.processes import bench_module, child

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from bench.setting import Setting

ROUNDS = 5
WARM_UP = 100


async def node_calls(setting: Setting) -> list[Figure]:
    """A tool call to a node and back: from the gateway against a bare echo, and from a client against a bare
    relay.
    """
    count = setting.size(1_000, 100)
    legs, calls, echoes, relays = (list[float]() for _ in range(4))
    async with contextlib.AsyncExitStack() as stack:
        echo = await _listening(setting, stack, "floors.echo")
        relay = await _listening(setting, stack, "floors.relay")
        easel = await stack.enter_async_context(easel_processes.up(setting, module="bench.calling_easel"))
        base = easel.server.url.replace("http", "ws", 1)
        for name, url in (("node", f"{base}/ws"), ("relayed-node", f"{relay}/node")):
            node = child(
                bench_module("floors.node", url, easel_processes.TOKEN), name=name, folder=setting.folder
            )
            await (await stack.enter_async_context(node)).line("ready")
        client = await stack.enter_async_context(gateway(easel.server.url, easel_processes.TOKEN))
        bare = [await stack.enter_async_context(socket_to(f"{url}/ws")) for url in (echo, relay)]
        for turn in range(setting.size(ROUNDS, 2)):
            echoes += (await _echoes(bare[0], WARM_UP + count))[WARM_UP:]
            timed = await ask(client, "bench.time", tool="bare__Echo", count=WARM_UP + count)
            legs += timed["result"][WARM_UP:]
            relays += (await _echoes(bare[1], WARM_UP + count))[WARM_UP:]
            calls += (await _calls(client, WARM_UP + count))[WARM_UP:]
            told = zip(
                ("echo", "to the node", "relay", "from a client"), (echoes, legs, relays, calls), strict=True
            )
            setting.say(
                f"round {turn + 1}: "
                + ", ".join(f"{what} {median(some[-count:]) * 1e6:.0f} µs" for what, some in told)
            )
    return [
        _compared(
            "node tool call, gateway to node and back, p50", legs, echoes, share=0.5, against="echo", bar=3
        ),
        _compared("node tool call, gateway to node and back, p99", legs, echoes, share=0.99, against="echo"),
        _compared("node tool call, client to node and back, p50", calls, echoes, share=0.5, against="echo"),
        _compared("node tool call, client to node and back, p50", calls, relays, share=0.5, against="relay"),
    ]


def _compared(
    name: str, ours: list[float], floor: list[float], *, share: float, against: str, bar: float | None = None
) -> Figure:
    return at_most(
        name,
        percentile(ours, share) * 1e3,
        percentile(floor, share) * 1e3,
        unit="ms",
        bar=bar,
        against=against,
    )


async def _listening(setting: Setting, stack: contextlib.AsyncExitStack, module: str) -> str:
    """Return the address of a started floor."""
    floor = await stack.enter_async_context(child(bench_module(module), name=module, folder=setting.folder))
    port = (await floor.line(r":(\d+)\b"))[1]
    return f"ws://127.0.0.1:{port}"


async def _calls(client: ClientConnection, count: int) -> list[float]:
    took: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        answer = await ask(client, "bench.call", tool="bare__Echo", args={"n": number})
        took.append(time.perf_counter() - began)
        if answer["result"] != {"n": number}:
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
