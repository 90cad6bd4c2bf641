"""`easel up` with two more methods, to time tool calls without the storage around a canvas action.

`bench.call` calls a tool once for its client; `bench.time` calls it many times on the server and returns the
time of each call. Run as `python -m bench.calling_easel up …`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from easel.core.tool.context import ToolContext
from easel.edges.decoding import Params
from easel.edges.methods import METHODS, Method
from easel.edges.results import InvokedTool

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from easel.edges.caller import Caller


class CallTool(Params):
    tool: str
    args: dict[str, Any]


async def call(caller: Caller, asked: CallTool) -> InvokedTool:
    result = await caller.services.tools.call(
        asked.tool, asked.args, ToolContext(caller.principal, "agent:main:main")
    )
    return InvokedTool(ok=True, result=result)


class TimeTool(Params):
    tool: str
    count: int


async def time_calls(caller: Caller, asked: TimeTool) -> InvokedTool:
    context, took = ToolContext(caller.principal, "agent:main:main"), list[float]()
    for number in range(asked.count):
        began = time.perf_counter()
        await caller.services.tools.call(asked.tool, {"n": number}, context)
        took.append(time.perf_counter() - began)
    return InvokedTool(ok=True, result=took)


if __name__ == "__main__":
    from easel.cli.app import main

    verbs = cast("MutableMapping[str, Method]", METHODS)
    verbs["bench.call"] = Method(CallTool, InvokedTool, METHODS["tool.invoke"].access, call)
    verbs["bench.time"] = Method(TimeTool, InvokedTool, METHODS["tool.invoke"].access, time_calls)
    main()
