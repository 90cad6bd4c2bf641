"""Tool nodes: machines that connect and offer tools, callable from every instance. CV-03, DESIGN §5

Owns the nodes connected to this instance, the cache of the nodes of other instances, and the route of a call:
over the node's connection if this instance has it, otherwise as a call to the instance that has it. An
instance renews its nodes; when the instance stops, its nodes expire.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from easel.core.call import NOT_SENT, Answer
from easel.core.principal import Principal, PrincipalKind, Role
from easel.core.stream.notifications import CallAnswered, NodeChanged, Notification
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import (
    LocalNode,
    Node,
    check_node_id,
    describe_taken,
    printable_label,
    split_tool_name,
)
from easel.core.tool.offer import DEFAULT_LIMITS, OfferLimits, parse_offer
from easel.errors import Forbidden, NotSignedIn, ToolFailed, TooMany, Unavailable
from easel.host.actions.live_output import LiveOutputs
from easel.host.audit.audit import Audit
from easel.host.calls.incoming_calls import IncomingCalls
from easel.host.calls.remote_calls import RemoteCalls
from easel.host.metrics import NODES
from easel.host.nodes.connection import NOT_CONNECTED, ConnectedNode
from easel.host.nodes.invocation import INVOKE, NodeInvocations, invocation_params
from easel.host.periodic import Periodic
from easel.host.ports import NodeLink, NodeStore, Notifier, SecretSource, TokenStore, Tool
from easel.host.tools.schema import check_is_schema
from easel.ids import AccountId, CallId, UserId, new_instance_id, scoped_key

MAX_CACHED_USERS = 1_000
SWEEP_SECONDS = 60.0
LONG_AGO = float("-inf")

log = structlog.get_logger("nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    ttl_seconds: float  # a node expires unless its instance renews it within this time
    poll_seconds: float
    max_calls: int = 64  # running on one node; more would only wait there
    max_nodes: int = 100  # of one user; each costs a connection and a row
    offer: OfferLimits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """A client's request to connect as a node."""

    principal: Principal
    node_id: str
    tools: Any
    connection_id: str
    version: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class _CachedNodes:
    """The nodes of a user that are connected to other instances."""

    nodes: Mapping[str, Node]
    read_at: float


class NodeRegistry:
    def __init__(
        self,
        store: NodeStore,
        tokens: TokenStore,
        notifier: Notifier,
        audit: Audit,
        limits: NodeLimits,
        *,
        remote: RemoteCalls,
        incoming: IncomingCalls,
        outputs: LiveOutputs | None = None,
        secrets: SecretSource | None = None,
    ) -> None:
        self.instance_id = new_instance_id()
        self._store = store
        self._notifier = notifier
        self._audit = audit
        self._tokens = tokens
        self._limits = limits
        self.local: LocalNode | None = None  # this instance's machine; set once its tools are known
        self._connected: dict[tuple[AccountId, str], ConnectedNode] = {}
        self._cache: dict[AccountId, _CachedNodes] = {}
        self._change_count = 0  # `NodeChanged` received; a query begun before the last one may be stale
        self._remote = remote
        self._incoming = incoming
        self._invocations = NodeInvocations(outputs, secrets)
        renew_seconds = limits.ttl_seconds / 3
        self._renewing = Periodic("nodes.renew", renew_seconds, self.renew, delay=renew_seconds)
        self._closing_tasks: set[asyncio.Task[None]] = set()
        notifier.listen(self._on_notification)

    # -- for agents and canvases -----------------------------------------------------------------------------

    async def definitions(self, account_id: AccountId) -> Sequence[ToolDefinition]:
        connected = {
            node_id: connection.node
            for (owner_id, node_id), connection in self._connected.items()
            if owner_id == account_id
        }
        nodes = {**await self._remote_nodes(account_id), **connected}
        return [tool for node_id in sorted(nodes) for tool in nodes[node_id].tools.values()]

    async def find(self, account_id: AccountId, name: str) -> Tool | None:
        node_id, _ = split_tool_name(name)
        connection = self._connected.get((account_id, node_id))
        if connection is not None:
            definition = connection.node.tools.get(name)
            return _LocalTool(definition, connection) if definition else None
        for refresh in (False, True):  # the node may have connected since the cache was filled
            node = (await self._remote_nodes(account_id, refresh=refresh)).get(node_id)
            if node is not None and name in node.tools:
                return _RemoteTool(node.tools[name], node, self)
        return None

    async def call_remote(
        self, node: Node, name: str, args: Mapping[str, Any], context: ToolContext
    ) -> Answer:
        """Call a tool of a node of another instance. If the node has reconnected, use its new connection."""
        params = invocation_params(name, args, context)
        answer = await self._remote.call(node.account_id, node.connection_id, INVOKE, params)
        if answer is NOT_SENT:
            reconnected = (await self._remote_nodes(node.account_id, refresh=True)).get(node.node_id)
            if reconnected is not None and name in reconnected.tools:
                answer = await self._remote.call(node.account_id, reconnected.connection_id, INVOKE, params)
        return NOT_CONNECTED if answer is NOT_SENT else answer

    async def list_nodes(self, principal: Principal) -> list[LocalNode | Node]:
        """Return the machine of this instance, then the user's nodes on all instances."""
        connected = await self._store.list_nodes(principal.account_id)
        return [*([] if self.local is None else [self.local]), *connected]

    async def _remote_nodes(self, account_id: AccountId, *, refresh: bool = False) -> Mapping[str, Node]:
        """Return the nodes of other instances by id, cached for a poll interval.

        A stale cache is used while the database is unavailable.
        """
        cached = self._cache.get(account_id)
        is_fresh = cached is not None and time.monotonic() - cached.read_at < self._limits.poll_seconds
        if cached is not None and is_fresh and not refresh:
            return cached.nodes
        change_count = self._change_count
        try:
            nodes = await self._store.list_nodes(account_id)
        except Unavailable:
            if cached is None:
                raise
            return cached.nodes
        remote = {node.node_id: node for node in nodes if node.instance_id != self.instance_id}
        if len(self._cache) >= MAX_CACHED_USERS:
            self._cache.clear()
        is_current = change_count == self._change_count
        self._cache[account_id] = _CachedNodes(remote, time.monotonic() if is_current else LONG_AGO)
        return remote

    # -- for the edge ----------------------------------------------------------------------------------------

    async def connect(self, registration: NodeRegistration, link: NodeLink) -> ConnectedNode:
        """Register a node so that all instances know it. The node receives calls after `activate`.

        The caller must call `disconnect` in the end, even if `connect` raises or is cancelled.
        """
        principal, limits = registration.principal, self._limits
        node_id = check_node_id(registration.node_id)
        _check_token(principal.only_node or node_id, node_id)
        tools = parse_offer(node_id, registration.tools, limits.offer)
        for number, tool in enumerate(tools.values()):
            check_is_schema(tool.schema, f"tools[{number}].inputSchema")
        node = Node(
            account_id=principal.account_id,
            node_id=node_id,
            user_id=_responsible(principal),
            connection_id=registration.connection_id,
            instance_id=self.instance_id,
            version=printable_label(registration.version),
            platform=printable_label(registration.platform),
            tools=tools,
        )
        await self._check_owner(principal, node)
        await self._bind_token(principal, node_id)
        registered = await self._store.register(node, seconds=limits.ttl_seconds, max_nodes=limits.max_nodes)
        if registered is None:
            raise TooMany(what="nodes of one user", limit=limits.max_nodes)
        self._notify_lost_calls(registered.lost_calls)
        self._audit.record_throttled(
            principal,
            "node.connected",
            subject=node_id,
            details={"tools": len(tools), "platform": node.platform},
        )
        return ConnectedNode(node, link, registered.connected_at, max_calls=limits.max_calls)

    async def _check_owner(self, principal: Principal, node: Node) -> None:
        """Raise `Forbidden` if another person has the node, unless an admin acts or made the token for it."""
        if principal.role is Role.ADMIN or principal.only_node is not None:
            return
        if await self._tokens.is_node_of_another(node.account_id, node.node_id, node.user_id):
            raise Forbidden(problem=describe_taken(node.node_id))

    async def _bind_token(self, principal: Principal, node_id: str) -> None:
        """Bind a node's token at its first connection. A person's token may connect as any node. RS-68"""
        if principal.kind is not PrincipalKind.NODE or principal.token_id is None or principal.only_node:
            return
        token_id = principal.token_id
        if await self._tokens.bind(token_id, node_id) is not None:
            await self._audit.record(principal, "token.bound", subject=token_id, details={"node": node_id})
        elif (bound := await self._tokens.find_by_id(token_id)) is not None:
            _check_token(bound.only_node, node_id)  # another connection has bound it first
        else:
            raise NotSignedIn

    def activate(self, connection: ConnectedNode) -> None:
        """Route calls to a node whose handshake is complete, and replace its older connection."""
        older = self._connected.get(connection.key)
        self._connected[connection.key] = connection
        if older is not None:
            self._replace(older)
        NODES.set(len(self._connected))
        self._notify_change(connection.node)
        self._renewing.start()
        invoke = partial(self._invocations.invoke, connection)
        self._incoming.add_target(connection.node.connection_id, {INVOKE: invoke})

    async def disconnect(self, registration: NodeRegistration) -> None:
        """Remove a connection that has ended, and end its calls on all instances."""
        principal, node_id = registration.principal, registration.node_id
        connection_id = registration.connection_id
        key = (principal.account_id, node_id)
        connection = self._connected.get(key)
        if connection is not None and connection.node.connection_id == connection_id:
            del self._connected[key]
            self._incoming.remove_target(connection_id)
            connection.mark_disconnected()
            NODES.set(len(self._connected))
            self._audit.record_throttled(principal, "node.disconnected", subject=node_id)
        try:
            lost_calls = await self._store.unregister(connection_id)
        except Unavailable:
            log.info("nodes.left_to_expire", node_id=node_id)
            return
        self._notify_lost_calls(lost_calls)
        self._notifier.notify(NodeChanged(scoped_key(principal.account_id, node_id), connection_id))

    def _replace(self, older: ConnectedNode) -> None:
        self._incoming.remove_target(older.node.connection_id)
        older.mark_disconnected()
        task = asyncio.create_task(older.link.close_replaced())
        self._closing_tasks.add(task)
        task.add_done_callback(self._closing_tasks.discard)

    def _notify_change(self, node: Node) -> None:
        self._notifier.notify(NodeChanged(scoped_key(node.account_id, node.node_id), node.connection_id))

    def _notify_lost_calls(self, call_ids: Sequence[CallId]) -> None:
        for call_id in call_ids:
            self._notifier.notify(CallAnswered(call_id))

    # -- between instances -----------------------------------------------------------------------------------

    def _on_notification(self, notification: Notification) -> None:
        if not isinstance(notification, NodeChanged):
            return
        account_id, _, node_id = notification.key.rpartition("/")
        self._change_count += 1
        if (cached := self._cache.get(AccountId(account_id))) is not None:
            self._cache[AccountId(account_id)] = replace(cached, read_at=LONG_AGO)
        connection = self._connected.get((AccountId(account_id), node_id))
        if connection is not None and connection.node.connection_id != notification.connection_id:
            self._renewing.wake()  # the node may have connected to another instance

    async def renew(self) -> None:
        """Renew the nodes connected here, and close those that have connected to another instance."""
        connections = list(self._connected.values())
        if not connections:
            return
        ttl_seconds = self._limits.ttl_seconds
        connection_ids = [connection.node.connection_id for connection in connections]
        renewed = await self._store.renew(connection_ids, ttl_seconds)
        for connection in connections:
            if connection.node.connection_id in renewed or not self._is_current(connection):
                continue
            if await self._store.register_again(
                connection.node, connection.connected_at, seconds=ttl_seconds
            ):
                self._notify_change(connection.node)
            elif self._is_current(connection):
                del self._connected[connection.key]
                self._replace(connection)

    def _is_current(self, connection: ConnectedNode) -> bool:
        return self._connected.get(connection.key) is connection

    def periodic(self) -> Periodic:
        """Return the periodic deletion of expired nodes of stopped instances."""
        return Periodic(
            "nodes.sweep", SWEEP_SECONDS, lambda: self._store.sweep(SWEEP_SECONDS), delay=SWEEP_SECONDS
        )

    async def close(self) -> None:
        await self._renewing.stop()
        for task in self._closing_tasks:
            task.cancel()
        await asyncio.gather(*self._closing_tasks, return_exceptions=True)


def _responsible(principal: Principal) -> UserId:
    """Return the person who answers for a node, which no other person replaces. RS-76"""
    if principal.responsible is None:
        raise NotSignedIn
    return principal.responsible


def _result_of(name: str, answer: Answer) -> Any:
    """Return the result of a tool, or raise `ToolFailed`."""
    if answer.is_lost:
        node_id = split_tool_name(name)[0]
        reason = f"node {node_id} disconnected before it answered; it may or may not have executed the call."
        raise ToolFailed(tool=name, reason=reason)
    if answer.error is not None:
        raise ToolFailed(tool=name, reason=answer.error)
    return answer.result


def _check_token(bound_to: str | None, node_id: str) -> None:
    """Raise `Forbidden` if the token is bound to another node id."""
    if bound_to != node_id:
        raise Forbidden(
            problem=f"this token is bound to the node {bound_to}: connect with that id, or create a token "
            f"for {node_id} with `easel token create --kind node --name {node_id}`."
        )


@dataclass(frozen=True, slots=True)
class _LocalTool:
    definition: ToolDefinition
    connection: ConnectedNode

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        name = self.definition.name
        return _result_of(name, await self.connection.call(name, args, context.on_output, context.env))


@dataclass(frozen=True, slots=True)
class _RemoteTool:
    definition: ToolDefinition
    node: Node
    registry: NodeRegistry

    @property
    def instance_of_node(self) -> str:
        return self.node.instance_id

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        name = self.definition.name
        answer = await self.registry.call_remote(self.node, name, args, context)
        return _result_of(name, answer)
