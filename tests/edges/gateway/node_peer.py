"""A tool node that a test controls, as a raw WebSocket in node mode, and calls to it from inside Easel."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from easel.core.tool.context import ToolContext
from easel.ids import AccountId
from tests.support.gateway import GatewayClient
from tests.support.principals import THE_OWNER
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


def new_tool(name: str = "Echo", schema: Any = ANY, **members: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **members}


TOOLS = [
    new_tool("Echo", annotations={"readOnlyHint": True, "idempotentHint": True}),
    new_tool(
        "Bash", SHELL, annotations={"destructiveHint": True, "openWorldHint": False, "title": "A shell"}
    ),
]


class NodePeer:
    """The far end of a node's connection; `client` is the WebSocket."""

    def __init__(self, client: GatewayClient, node_id: str) -> None:
        self.client = client
        self.node_id = node_id

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, easel: LiveEasel, node_id: str, *, at: int = 0, token: str | None = None, tools: Any = None
    ) -> AsyncIterator[NodePeer]:
        """Connect a node; at the end, wait until its row is deleted, for the next test."""
        async with GatewayClient.open(easel.instances[at].base_url, token or easel.token) as client:
            hello = await client.connect(node_id, mode="node", tools=TOOLS if tools is None else tools)
            yield cls(client, node_id)
        await wait_for(lambda: _is_unregistered(easel, hello["server"]["connectionId"]))

    async def receive_call(self) -> dict[str, Any]:
        event = await self.client.event()
        assert (event.event, event.seq) == ("tool.invoke", None)
        assert set(event.payload) == {"callId", "tool", "args"}
        return event.payload

    async def receive_cancel(self) -> str:
        event = await self.client.event()
        assert (event.event, set(event.payload)) == ("tool.cancel", {"callId"})
        return event.payload["callId"]

    async def answer(self, call_id: str, **answer: Any) -> dict[str, Any]:
        return await self.client.call("tool.result", callId=call_id, **answer)

    async def echo_next_call(self) -> dict[str, Any]:
        """Answer the next call with its own arguments, and return it."""
        call = await self.receive_call()
        assert await self.answer(call["callId"], result=call["args"]) == {"ok": True}
        return call


async def _is_unregistered(easel: LiveEasel, connection_id: str) -> bool:
    if easel._loop.is_closed():
        return True
    return not await asyncio.to_thread(
        easel.sql, f"select 1 as there from nodes where connection_id = '{connection_id}'"
    )


def call_tool(
    easel: LiveEasel,
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    at: int = 0,
    user: str = "owner",
    seconds: float | None = None,
    on_output: Callable[[str], None] | None = None,
) -> asyncio.Future[Any]:
    """Call a tool from inside Easel, like an agent or a canvas. Cancelling the future cancels the call."""
    context = ToolContext(
        replace(THE_OWNER, account_id=AccountId(user)), "agent:main:main", on_output=on_output
    )
    call = easel.instances[at].tools.call(name, args or {}, context, timeout_seconds=seconds)
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, easel._loop))


async def node_tool_names(easel: LiveEasel, *, at: int = 0, user: str = "owner") -> set[str]:
    """Return the tools of nodes that an agent can call."""
    definitions = easel.instances[at].tools.definitions(AccountId(user))
    found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(definitions, easel._loop))
    return {name for name in found if "__" in name and not name.startswith(("gsv__", "local__"))}
