"""A tool node played by hand: a raw WebSocket in node mode that says what a test tells it, and calls that reach it from inside Easel."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from easel.core.principal import THE_OWNER
from easel.core.tool.context import ToolContext
from easel.ids import UserId
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tests.edges.http.live import LiveEasel

SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "x-shell": True}},
    "required": ["command"],
    "additionalProperties": False,
}
ANY: dict[str, Any] = {"type": "object"}


def a_tool(name: str = "Echo", schema: Any = ANY, **changed: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **changed}


TOOLS = [
    a_tool("Echo", annotations={"readOnlyHint": True, "idempotentHint": True}),
    a_tool("Bash", SHELL, annotations={"destructiveHint": True, "openWorldHint": False, "title": "A shell"}),
]


class NodePeer:
    """What a node hears and says. `client` is the bare connection."""

    def __init__(self, client: GatewayClient, node_id: str) -> None:
        self.client = client
        self.node_id = node_id

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, easel: LiveEasel, node_id: str, *, at: int = 0, token: str | None = None, tools: Any = None
    ) -> AsyncIterator[NodePeer]:
        """Gone when this is over: whoever comes next, under this name or another, finds nothing of it."""
        async with GatewayClient.open(easel.instances[at].base_url, token or easel.token) as client:
            hello = await client.connect(node_id, mode="node", tools=TOOLS if tools is None else tools)
            yield cls(client, node_id)
        await wait_for(lambda: _has_left(easel, hello["server"]["connectionId"]))

    async def invoked(self) -> dict[str, Any]:
        heard = await self.client.event()
        assert (heard.event, heard.seq) == ("tool.invoke", None)
        assert set(heard.payload) == {"callId", "tool", "args"}
        return heard.payload

    async def cancelled(self) -> str:
        heard = await self.client.event()
        assert (heard.event, set(heard.payload)) == ("tool.cancel", {"callId"})
        return heard.payload["callId"]

    async def answer(self, call_id: str, **answer: Any) -> dict[str, Any]:
        return await self.client.call("tool.result", callId=call_id, **answer)

    async def echo_one(self) -> dict[str, Any]:
        """Answers the next call with its own arguments."""
        call = await self.invoked()
        assert await self.answer(call["callId"], result=call["args"]) == {"ok": True}
        return call


async def _has_left(easel: LiveEasel, connection_id: str) -> bool:
    """Its row is the last that goes."""
    if easel._loop.is_closed():
        return True
    return not await asyncio.to_thread(
        easel.sql, f"select 1 as there from nodes where connection_id = '{connection_id}'"
    )


def using(
    easel: LiveEasel,
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    at: int = 0,
    user: str = "owner",
    seconds: float | None = None,
    on_output: Callable[[str], None] | None = None,
) -> asyncio.Future[Any]:
    """A call of a tool from inside Easel, as an agent and a canvas make it; cancelling it cancels the call."""
    context = ToolContext(replace(THE_OWNER, user_id=UserId(user)), "agent:main:main", on_output=on_output)
    call = easel.instances[at].tools.call(name, args or {}, context, timeout_seconds=seconds)
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, easel._loop))


async def names_of(easel: LiveEasel, *, at: int = 0, user: str = "owner") -> set[str]:
    """The tools that are offered by nodes, as agents see them."""
    definitions = easel.instances[at].tools.definitions(UserId(user))
    found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(definitions, easel._loop))
    return {name for name in found if not name.startswith(("gsv__", "local__"))}
