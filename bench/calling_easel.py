"""`easel up` with one verb more: `bench.call` calls a tool and waits for it, so that a call can be timed without what a canvas stores around it.

Run as `python -m bench.calling_easel up …`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from easel.core.tool.context import ToolContext
from easel.edges.methods import METHODS, Caller, Method
from easel.edges.params import Params

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class CallTool(Params):
    tool: str
    args: dict[str, Any]


async def call(caller: Caller, asked: CallTool) -> Any:
    return await caller.host.tools.call(asked.tool, asked.args, ToolContext(caller.who, "agent:main:main"))


if __name__ == "__main__":
    from easel.cli import main

    cast("MutableMapping[str, Method]", METHODS)["bench.call"] = Method(CallTool, call)
    main()
