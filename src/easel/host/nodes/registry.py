"""Tool nodes: machines that connect to the gateway and offer tools, and the way to them from any instance. CV-03, DESIGN §5

Owns who is connected here, what all instances know of each other's nodes, and where a call goes: directly over the connection if that is
here, and else by `node_calls` to the instance that has it. An instance renews what it has; if it dies, its nodes run out.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from easel.core.principal import Principal
from easel.core.stream.notifications import CallAnswered, CallPending, NodeChanged, Notification
from easel.core.tool.call import NOT_ASKED, Answer
from easel.core.tool.context import ToolContext, Watched
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import LocalNode, Node, about, checked_node_id, split_tool_name
from easel.core.tool.offer import OfferLimits, checked_offer
from easel.errors import Forbidden, TooMany, Unavailable
from easel.host.actions.live_output import LiveOutputs
from easel.host.audit import Audit
from easel.host.metrics import NODES
from easel.host.nodes.connection import ConnectedNode
from easel.host.nodes.incoming_calls import IncomingCalls, outcome
from easel.host.nodes.remote_calls import RemoteCalls
from easel.host.ports import ArtifactAccess, NodeLink, NodeStore, Notifier, Tool
from easel.host.tools.schema import check_is_schema
from easel.ids import CallId, UserId, new_instance_id, owned

MAX_KNOWN = 1_000  # users whose nodes are remembered between two looks
SWEEP_SECONDS = 60.0
LONG_AGO = float("-inf")

log = structlog.get_logger("nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    seconds: float  # a node is believed to be there for so long when its instance is not heard of
    caller_ttl_seconds: float  # and who calls one
    poll_seconds: float
    call_seconds: float
    calls: int  # under way at one node
    nodes: int  # of one user
    result_bytes: int
    offer: OfferLimits


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """Who connects as a node, and how."""

    principal: Principal
    node_id: str
    tools: Any
    connection_id: str
    version: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class _Known:
    """The nodes of a user, as they were a moment ago."""

    nodes: Mapping[str, Node]
    read_at: float


class NodeRegistry:
    def __init__(
        self,
        store: NodeStore,
        keeper: ArtifactAccess,
        notifier: Notifier,
        audit: Audit,
        limits: NodeLimits,
        *,
        outputs: LiveOutputs | None = None,
    ) -> None:
        self.instance_id = new_instance_id()
        self._store = store
        self._notifier = notifier
        self._audit = audit
        self._limits = limits
        self.local: LocalNode | None = None  # known once its tools are
        self._here: dict[tuple[UserId, str], ConnectedNode] = {}
        self._known: dict[UserId, _Known] = {}
        self._changes = 0  # rings heard: what was read before one of them may be old
        times = {
            "poll_seconds": limits.poll_seconds,
            "call_seconds": limits.call_seconds,
            "caller_ttl_seconds": limits.caller_ttl_seconds,
        }
        self._elsewhere = RemoteCalls(store, keeper, notifier, **times)
        self._errands = IncomingCalls(
            store,
            keeper,
            notifier,
            outputs,
            result_bytes=limits.result_bytes,
            caller_ttl_seconds=limits.caller_ttl_seconds,
        )
        self._wake = asyncio.Event()
        self._is_doubtful = False  # somebody else says to have a node that is here
        self._duty: asyncio.Task[None] | None = None
        self._goodbyes: set[asyncio.Task[None]] = set()
        notifier.listen(self._on_notification)

    # -- for agents and canvases -----------------------------------------------------------------------------------

    async def definitions(self, user_id: UserId) -> Sequence[ToolDefinition]:
        nodes = {node_id: one.node for (whose, node_id), one in self._here.items() if whose == user_id}
        nodes = {**await self._known_of(user_id), **nodes}
        return [tool for node_id in sorted(nodes) for tool in nodes[node_id].tools.values()]

    async def find(self, user_id: UserId, name: str) -> Tool | None:
        node_id, _ = split_tool_name(name)
        here = self._here.get((user_id, node_id))
        if here is not None:
            definition = here.node.tools.get(name)
            return _LocalTool(definition, here) if definition else None
        for is_fresh in (False, True):  # what is not there may have come a moment ago
            there = (await self._known_of(user_id, is_fresh=is_fresh)).get(node_id)
            if there is not None and name in there.tools:
                return _RemoteTool(there.tools[name], there, self)
        return None

    async def call_remote(
        self, node: Node, name: str, args: Mapping[str, Any], watched: Watched | None
    ) -> Answer:
        """If it has just come back by another connection, by that one."""
        answer = await self._elsewhere.call(node, name, args, watched)
        if answer is not NOT_ASKED:
            return answer
        again = (await self._known_of(node.user_id, is_fresh=True)).get(node.node_id)
        return (
            await self._elsewhere.call(again, name, args, watched)
            if again is not None and name in again.tools
            else NOT_ASKED
        )

    async def list_nodes(self, principal: Principal) -> list[LocalNode | Node]:
        """This machine first, as this instance knows it, then those that are connected, wherever."""
        connected = await self._store.list_nodes(principal.user_id)
        return [*([] if self.local is None else [self.local]), *connected]

    async def _known_of(self, user_id: UserId, *, is_fresh: bool = False) -> Mapping[str, Node]:
        known = self._known.get(user_id)
        if (
            not is_fresh
            and known is not None
            and time.monotonic() - known.read_at < self._limits.poll_seconds
        ):
            return known.nodes
        changes = self._changes
        try:
            nodes = await self._store.list_nodes(user_id)
        except Unavailable:
            if known is None:
                raise
            return known.nodes
        found = {node.node_id: node for node in nodes if node.instance_id != self.instance_id}
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[user_id] = _Known(found, time.monotonic() if changes == self._changes else LONG_AGO)
        return found

    # -- for the edge ----------------------------------------------------------------------------------------------

    async def enter(self, arrival: NodeRegistration, link: NodeLink) -> ConnectedNode:
        """It is known to all from now on, and called after `open`. Whoever asked for this calls `leave`, however it ends."""
        principal, limits = arrival.principal, self._limits
        node_id = checked_node_id(arrival.node_id)
        if principal.only_node not in (None, node_id):
            raise Forbidden(problem=f"this token is for the node {principal.only_node} alone.")
        tools = checked_offer(node_id, arrival.tools, limits.offer)
        for number, tool in enumerate(tools.values()):
            check_is_schema(tool.schema, f"tools[{number}].inputSchema")
        node = Node(
            user_id=principal.user_id,
            node_id=node_id,
            connection_id=arrival.connection_id,
            instance_id=self.instance_id,
            version=about(arrival.version),
            platform=about(arrival.platform),
            tools=tools,
        )
        entered = await self._store.register(node, seconds=limits.seconds, max_nodes=limits.nodes)
        if entered is None:
            raise TooMany(what="nodes of one user", limit=limits.nodes)
        self._tell_lost(entered.lost)
        self._audit.record_throttled(
            principal,
            "node.connected",
            subject=node_id,
            details={"tools": len(tools), "platform": node.platform},
        )
        return ConnectedNode(node, link, entered.connected_at, max_calls=limits.calls)

    def open(self, one: ConnectedNode) -> None:
        """It has been greeted, and can be asked."""
        key = (one.node.user_id, one.node.node_id)
        older = self._here.get(key)
        self._here[key] = one
        if older is not None:
            self._replace(older)
        NODES.set(len(self._here))
        self._tell_change(one.node)
        self._wake.set()  # somebody may have asked it already: others know it since `enter`
        if self._duty is None or self._duty.done():
            self._duty = asyncio.create_task(self._do_duty())

    async def leave(self, arrival: NodeRegistration) -> None:
        """A connection has ended. What it was asked ends now, here and elsewhere."""
        principal, node_id, connection_id = arrival.principal, arrival.node_id, arrival.connection_id
        key = (principal.user_id, node_id)
        one = self._here.get(key)
        if one is not None and one.node.connection_id == connection_id:
            del self._here[key]
            one.lose()
            NODES.set(len(self._here))
            self._audit.record_throttled(principal, "node.disconnected", subject=node_id)
        try:
            lost = await self._store.unregister(connection_id)
        except Unavailable:
            log.info("nodes.not_left", node_id=node_id)  # it runs out by itself
            return
        self._tell_lost(lost)
        self._notifier.notify(NodeChanged(owned(principal.user_id, node_id), connection_id))

    def _replace(self, older: ConnectedNode) -> None:
        older.lose()
        goodbye = asyncio.create_task(older.link.close_replaced())
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)

    def _tell_change(self, node: Node) -> None:
        self._notifier.notify(NodeChanged(owned(node.user_id, node.node_id), node.connection_id))

    def _tell_lost(self, lost: Sequence[CallId]) -> None:
        for call_id in lost:
            self._notifier.notify(CallAnswered(call_id))

    # -- between instances -----------------------------------------------------------------------------------------

    def _on_notification(self, notification: Notification) -> None:
        match notification:
            case NodeChanged(key, connection_id):
                user_id, _, node_id = key.rpartition("/")
                self._changes += 1
                if (known := self._known.get(UserId(user_id))) is not None:
                    self._known[UserId(user_id)] = replace(known, read_at=LONG_AGO)
                here = self._here.get((UserId(user_id), node_id))
                if here is not None and here.node.connection_id != connection_id:
                    self._is_doubtful = True
                    self._wake.set()
            case CallPending(connection_id):
                if any(one.node.connection_id == connection_id for one in self._here.values()):
                    self._wake.set()
            case CallAnswered():
                self._elsewhere.hear(notification)
            case _:
                pass

    async def _do_duty(self) -> None:
        """As long as there is a node here: take what is asked of it elsewhere, and say that it is alive."""
        renew_at = time.monotonic() + self._limits.seconds / 3
        while self._here:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    min(self._limits.poll_seconds, max(0.0, renew_at - time.monotonic()))
                ):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if self._is_doubtful or time.monotonic() >= renew_at:
                    renew_at = time.monotonic() + self._limits.seconds / 3
                    await self.renew()
                await self._errands.once({one.node.connection_id: one for one in self._here.values()})
            except Unavailable:
                self._errands.note_store_outage()
                await asyncio.sleep(self._limits.poll_seconds)
            except Exception:
                log.exception("nodes.duty_error")
                await asyncio.sleep(self._limits.poll_seconds)

    async def renew(self) -> None:
        """What is here stays known to all; what has connected elsewhere meanwhile is let go."""
        self._is_doubtful = False
        held = list(self._here.values())
        renewed = await self._store.renew([one.node.connection_id for one in held], self._limits.seconds)
        for one in held:
            key = (one.node.user_id, one.node.node_id)
            if one.node.connection_id in renewed or self._here.get(key) is not one:
                continue
            if await self._store.register_again(one.node, one.connected_at, seconds=self._limits.seconds):
                self._tell_change(one.node)
            elif self._here.get(key) is one:
                del self._here[key]
                self._replace(one)

    async def sweep_forever(self) -> None:
        """What dead instances left behind."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with contextlib.suppress(Unavailable):
                await self._store.sweep(SWEEP_SECONDS)

    async def close(self) -> None:
        for task in (self._duty, *self._goodbyes):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._errands.close()
        await self._elsewhere.close()


@dataclass(frozen=True, slots=True)
class _LocalTool:
    definition: ToolDefinition
    node: ConnectedNode

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return outcome(
            self.definition.name, await self.node.call(self.definition.name, args, context.on_output)
        )


@dataclass(frozen=True, slots=True)
class _RemoteTool:
    definition: ToolDefinition
    node: Node
    nodes: NodeRegistry

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return outcome(
            self.definition.name,
            await self.nodes.call_remote(self.node, self.definition.name, args, context.watched),
        )
