"""Instances with a node registry on one store, and the far end of a node's connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.call import Answer
from easel.core.tool.context import ToolContext
from easel.core.tool.offer import OfferLimits
from easel.errors import ToolFailed, Unavailable
from easel.host.calls.incoming_calls import IncomingCalls
from easel.host.calls.remote_calls import RemoteCallLimits, RemoteCalls
from easel.host.nodes.registry import NodeLimits, NodeRegistration, NodeRegistry
from easel.ids import OWNER, CallId, new_connection_id
from tests.support.principals import THE_OWNER
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from easel.host.nodes.connection import ConnectedNode
    from tests.host.conftest import RunHarness

CONTEXT = ToolContext(THE_OWNER, "agent:main:main")
LIMITS = NodeLimits(
    ttl_seconds=30, poll_seconds=0.02, max_calls=4, max_nodes=3, offer=OfferLimits(10, 10_000)
)
CALL_LIMITS = RemoteCallLimits(
    caller_ttl_seconds=30, poll_seconds=0.02, call_seconds=20, max_result_bytes=10_000
)
TOOLS = [{"name": "Echo", "inputSchema": {"type": "object"}}]


class FakeLink:
    """The far end of a node's connection: records what is sent to the node."""

    def __init__(self) -> None:
        self.invoked: asyncio.Queue[tuple[CallId, str, Mapping[str, Any]]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[CallId] = asyncio.Queue()
        self.is_replaced = asyncio.Event()

    async def invoke(
        self, call_id: CallId, tool: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self.invoked.put_nowait((call_id, tool, args))

    async def cancel(self, call_id: CallId) -> None:
        self.cancelled.put_nowait(call_id)

    async def close_replaced(self) -> None:
        self.is_replaced.set()


class UnreliableStore:
    """The real stores of nodes and calls, except that the methods named in `unavailable` fail."""

    def __init__(self, nodes: Any, calls: Any) -> None:
        self._nodes = nodes
        self._calls = calls
        self.unavailable: set[str] = set()
        self.failure_count = 0

    def __getattr__(self, name: str) -> Any:
        if name in self.unavailable:
            return self._fail
        return getattr(self._nodes if hasattr(self._nodes, name) else self._calls, name)

    async def _fail(self, *_: Any, **__: Any) -> Any:
        self.failure_count += 1
        raise Unavailable(what="The database")


def record_calls(store: Any, name: str, mark: Callable[[], Any]) -> asyncio.Queue[Any]:
    """Return a queue that gets the mark at the start of each call of this method, once the call is done."""
    done: asyncio.Queue[Any] = asyncio.Queue()
    real = getattr(store, name)

    async def call(*args: Any, **kwargs: Any) -> Any:
        started = mark()
        result = await real(*args, **kwargs)
        done.put_nowait(started)
        return result

    setattr(store, name, call)
    return done


def hold_next_call(store: Any, name: str, *, after: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the next call of this method. Returns an event for "is held" and one for "may continue"."""
    is_held, may_continue = asyncio.Event(), asyncio.Event()
    real = getattr(store, name)

    async def call(*args: Any, **kwargs: Any) -> Any:
        setattr(store, name, real)
        result = await real(*args, **kwargs) if after else None
        is_held.set()
        await may_continue.wait()
        return result if after else await real(*args, **kwargs)

    setattr(store, name, call)
    return is_held, may_continue


class Instance:
    def __init__(
        self, harness: RunHarness, limits: NodeLimits = LIMITS, calls: RemoteCallLimits = CALL_LIMITS
    ) -> None:
        self.store: Any = UnreliableStore(harness.database.nodes, harness.database.calls)
        notifier = harness.database.notifier
        self.remote = RemoteCalls(self.store, harness.artifacts, notifier, calls)
        self.incoming = IncomingCalls(self.store, harness.artifacts, notifier, calls)
        self.nodes = NodeRegistry(
            self.store,
            harness.database.tokens,
            notifier,
            harness.audit,
            limits,
            remote=self.remote,
            incoming=self.incoming,
        )

    async def close(self) -> None:
        for service in (self.nodes, self.incoming, self.remote):
            await service.close()

    async def connect(
        self, node_id: str = "laptop", tools: Any = TOOLS
    ) -> tuple[ConnectedNode, FakeLink, NodeRegistration]:
        link = FakeLink()
        registration = NodeRegistration(THE_OWNER, node_id, tools, new_connection_id(), "1", "test")
        node = await self.nodes.connect(registration, link)
        self.nodes.activate(node)
        return node, link, registration

    async def use(self, name: str = "laptop__Echo", args: Mapping[str, Any] | None = None) -> Any:
        tool = await self.nodes.find(OWNER, name)
        assert tool is not None, f"{name} was not found"
        return await tool.use(args or {}, CONTEXT)

    async def tool_names(self) -> list[str]:
        return [tool.name for tool in await self.nodes.definitions(OWNER)]


async def answer_next(
    node: ConnectedNode, link: FakeLink, result: Any = "done"
) -> tuple[str, Mapping[str, Any]]:
    """Answer the next call to the node. Returns the tool and the arguments."""
    call_id, tool, args = await within_timeout(link.invoked.get())
    assert node.finish_call(call_id, Answer(result))
    return tool, args


async def failure_of(call: asyncio.Task[Any]) -> str:
    """Return the message with which the call fails."""
    with pytest.raises(ToolFailed) as failure:
        await within_timeout(call)
    return failure.value.message
