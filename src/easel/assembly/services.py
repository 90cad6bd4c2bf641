"""Puts the parts together: the only module that knows everyone.

A process is its ground, and on it an API, a worker, or both. What is opened here is closed here, in the other order.
"""

import contextlib
import platform
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

from easel import __version__, demo
from easel.assembly.resources import (
    Database,
    Reached,
    Resources,
    open_blobs,
    open_database,
    open_resources,
    open_token_admin,
    owner_token,
    verified,
)
from easel.core.action.policy import APPROVAL_MODES
from easel.core.canvas.spec import SpecLimits
from easel.core.principal import THE_OWNER
from easel.core.run.boards import BoardLimits
from easel.core.tool.node import LOCAL, LocalNode, checked_node_id
from easel.edges.gateway import gateway as gateways
from easel.edges.gateway.gateway import Gateway, GatewayLimits
from easel.edges.http.app import EdgeSettings, HttpEdge
from easel.edges.http.routes import OPS, ROUTES, SOCKETS
from easel.edges.http.server import HttpServer, listen_on
from easel.edges.http.sockets import SocketRow
from easel.errors import AlreadyExists, BadInput
from easel.host.actions.executor import ActionExecutor
from easel.host.actions.outcomes import RecordRetention
from easel.host.actions.refresh import RefreshLimits, RefreshScheduler
from easel.host.actions.service import ActionLimits, ActionService
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.boards.service import Boards
from easel.host.boards.tools import board_tools
from easel.host.canvases.agent_tools import canvas_tools
from easel.host.canvases.assets import AssetLimits, CanvasAssets
from easel.host.canvases.library import CanvasLibrary, Draft
from easel.host.canvases.log_retention import CanvasLogs
from easel.host.canvases.pages import CanvasPages
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.canvases.views import CanvasViews
from easel.host.metrics import SANDBOX_CLEANUP_FAILURES, SANDBOX_CLEANUPS
from easel.host.ports import LogSource, Tool
from easel.host.readiness import Readiness
from easel.host.runs.queue import RunQueue
from easel.host.runs.tool_loop import ToolLoop
from easel.host.runs.worker import RunWorker
from easel.host.services import Services
from easel.host.sessions import Sessions
from easel.host.streams import CANVASES, RUNS, THREADS, LogKind, StreamQuota, Tails
from easel.host.tools.native import native_tools
from easel.host.tools.registry import ToolRegistry
from easel.ids import new_worker_id
from easel.llm.scripted import ScriptedModel
from easel.node.address import gateway_url
from easel.node.client import NodeClient, Tell
from easel.sandbox import modes
from easel.sandbox.limits import MB, CommandLimits
from easel.sandbox.modes import Choice
from easel.sandbox.session_dirs import SessionFolders
from easel.sandbox.tools import machine_tools
from easel.sandbox.workspace import FixedRoots
from easel.settings import Settings

__all__ = [  # with what a command needs of the ground, so that it knows this module alone
    "Database",
    "Reached",
    "Resources",
    "host",
    "listening",
    "load_demo",
    "node",
    "open_blobs",
    "open_database",
    "open_resources",
    "open_token_admin",
    "sandbox",
    "serving",
    "toolbox",
    "verified",
    "worker",
]


def boards(on: Resources) -> Boards:
    limits = BoardLimits(
        on.settings.max_board_bytes, on.settings.max_board_keys, on.settings.max_board_total_bytes
    )
    return Boards(on.database.boards, on.artifacts, on.database.notifier, limits)


def canvas_assets(on: Resources) -> CanvasAssets:
    limits = AssetLimits(on.settings.max_asset_bytes, on.settings.max_canvas_assets)
    return CanvasAssets(on.database.canvases, canvas_changes(on), on.blobs, limits)


def canvas_changes(on: Resources) -> CanvasTransactions:
    return CanvasTransactions(on.database.canvases, on.blobs, on.database.notifier)


def canvas_views(on: Resources) -> CanvasViews:
    return CanvasViews(
        on.database.canvases, canvas_changes(on), view_ttl_seconds=on.settings.view_ttl_seconds
    )


def canvas_library(on: Resources, tools: ToolRegistry) -> CanvasLibrary:
    return CanvasLibrary(
        on.database.canvases,
        canvas_changes(on),
        canvas_assets(on),
        on.artifacts,
        tools,
        notifier=on.database.notifier,
        audit=on.audit,
        limits=spec_limits(on.settings),
        floor=APPROVAL_MODES[on.settings.approval_mode],
    )


def sandbox(settings: Settings) -> Choice:
    """What isolates commands here, or why there are none. Tries it out: once per process is enough. RS-61"""
    is_prod = settings.profile == "prod"
    return modes.choose(settings.sandbox_mode, uid=settings.sandbox_uid, bash=settings.bash, is_prod=is_prod)


def command_limits(settings: Settings) -> CommandLimits:
    return CommandLimits(
        cpu_seconds=settings.sandbox_cpu_limit,
        memory_bytes=settings.sandbox_memory_limit_mb * MB,
        processes=settings.sandbox_processes,
        output_bytes=settings.sandbox_output_bytes,
        file_bytes=settings.sandbox_file_limit_mb * MB,
        free_bytes=settings.sandbox_free_mb * MB,
    )


def session_folders(settings: Settings, owner: int | None = None) -> SessionFolders:
    return SessionFolders(
        settings.sandbox_folder,
        owner=owner,
        ttl_seconds=settings.sandbox_ttl_seconds,
        network=settings.sandbox_network == "enabled",
        count_removed=SANDBOX_CLEANUPS.inc,
        count_failed=SANDBOX_CLEANUP_FAILURES.inc,
    )


def local_tools(on: Resources, in_force: Choice) -> Sequence[Tool]:
    """The node that is there by default: this machine, where each session has a folder of its own."""
    return machine_tools(
        LOCAL,
        session_folders(on.settings, in_force.owner),
        in_force.shell(command_limits(on.settings)),
        network=True,
        note=on.audit.note,
        worker_id=new_worker_id(),
    )


def toolbox(on: Resources, more: Sequence[Tool] = (), in_force: Choice | None = None) -> ToolRegistry:
    in_force = in_force or sandbox(on.settings)
    local = local_tools(on, in_force)
    names = [tool.definition.name for tool in local]
    on.nodes.local = LocalNode(
        version=__version__, platform=platform.system().lower(), tools=names, bash=in_force.says
    )
    tools = ToolRegistry(
        [*native_tools(), *board_tools(boards(on)), *local, *more],
        audit=on.audit,
        timeout_seconds=on.settings.tool_timeout_seconds,
        max_result_bytes=on.settings.max_result_bytes,
        sources=[on.nodes],
    )
    opened = on.database
    tools.add(canvas_tools(canvas_library(on, tools), canvas_views(on), opened.runs, opened.canvases))
    return tools


def node(
    settings: Settings,
    in_force: Choice,
    *,
    url: str,
    node_id: str,
    token: str,
    roots: Sequence[Path],
    tell: Tell,
) -> NodeClient:
    """This machine as a node of an Easel elsewhere: its tools, in the folders that they may touch."""
    network = settings.sandbox_network == "enabled"
    workplace = FixedRoots(roots, network=network)
    tools = machine_tools("", workplace, in_force.shell(command_limits(settings)), network=network)
    return NodeClient(gateway_url(url), checked_node_id(node_id), tools, tell, token)


def worker(on: Resources, tools: ToolRegistry) -> RunWorker:
    settings = on.settings
    return RunWorker(
        new_worker_id(),
        on.database.runs,
        on.artifacts,
        on.database.notifier,
        ToolLoop(ScriptedModel(), tools, max_steps=settings.max_steps),
        slots=settings.worker_runs,
        claim_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        drain_seconds=settings.drain_seconds,
        run_timeout_seconds=settings.run_timeout_seconds,
        prefer_seconds=settings.prefer_worker_seconds
        if settings.on_postgres
        else 0,  # on SQLite there is no other worker
        retention_seconds=settings.retention_days * 86_400,
        audit=on.audit,
        also=[
            RecordRetention(on.database.canvas_actions, settings.retention_days * 86_400).prune_forever,
            CanvasLogs(on.database.canvases, settings.retention_days * 86_400).shorten_forever,
            on.artifacts.sweep_forever,
            canvas_assets(on).sweep_forever,
            on.nodes.sweep_forever,
            session_folders(settings).clean_forever,
        ],
    )


def host(on: Resources, tools: ToolRegistry) -> Services:
    settings, opened, notifier = on.settings, on.database, on.database.notifier
    token = owner_token(settings)
    on.audit.hide(token)
    sign_outs = RevokedSignIns(
        opened.sign_ins, notifier, keep_seconds=max(COOKIE_SECONDS, settings.view_token_seconds)
    )
    sign_in = SignIn(token, opened.tokens, sign_outs)
    limits = {"max_attempts": settings.max_attempts, "max_message_bytes": settings.max_message_bytes}
    queue = RunQueue(opened.runs, on.artifacts, notifier, on.audit, **limits)
    room = StreamQuota(settings.max_streams)
    changes, assets = canvas_changes(on), canvas_assets(on)

    def tails(kind: LogKind, source: LogSource) -> Tails:
        return Tails(
            kind,
            source,
            notifier,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            stall_seconds=settings.stall_seconds,
            room=room,
            window=settings.tail_window,
        )

    runs = tails(RUNS, opened.runs)
    instance_id = new_worker_id()
    actions = ActionService(
        opened.canvas_actions,
        changes,
        ActionExecutor(tools, queue, runs, on.artifacts, answer_seconds=settings.run_timeout_seconds),
        on.artifacts,
        outputs=on.outputs,
        notifier=notifier,
        audit=on.audit,
        limits=action_limits(settings),
        instance_id=instance_id,
        is_alone=not settings.on_postgres,
    )
    return Services(
        sign_in=sign_in,
        audit=on.audit,
        artifacts=on.artifacts,
        boards=boards(on),
        queue=queue,
        sessions=Sessions(opened.sessions, queue, notifier, on.audit),
        canvases=canvas_library(on, tools),
        actions=actions,
        refresh=RefreshScheduler(
            opened.canvas_actions,
            actions,
            changes,
            on.audit,
            refresh_limits(settings),
            instance_id=instance_id,
        ),
        assets=assets,
        views=canvas_views(on),
        pages=CanvasPages(
            changes,
            on.artifacts,
            on.audit,
            sign_in,
            token_seconds=settings.view_token_seconds,
            max_state_bytes=settings.max_state_bytes,
        ),
        tails=runs,
        threads=tails(THREADS, opened.sessions),
        canvas_tails=tails(CANVASES, opened.canvases),
        readiness=Readiness(opened.runs),
        tools=tools,
        nodes=on.nodes,
    )


def spec_limits(settings: Settings) -> SpecLimits:
    return SpecLimits(
        spec_bytes=settings.max_spec_bytes,
        state_bytes=settings.max_state_bytes,
        actions=settings.max_canvas_actions,
        bindings=settings.max_canvas_bindings,
        refreshes=settings.max_canvas_refreshes,
        tools=settings.max_canvas_tools,
    )


def action_limits(settings: Settings) -> ActionLimits:
    return ActionLimits(
        at_once=settings.max_actions,
        state_bytes=settings.max_state_bytes,
        lease_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        confirm_seconds=settings.confirm_seconds,
        floor=APPROVAL_MODES[settings.approval_mode],
        confirmations=settings.max_confirmations,
    )


def refresh_limits(settings: Settings) -> RefreshLimits:
    return RefreshLimits(
        at_once=settings.max_refreshes,
        lease_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        unwatched=settings.refresh_unwatched,
    )


def gateway(settings: Settings, services: Services) -> Gateway:
    limits = GatewayLimits(
        connections=settings.max_streams,
        requests=settings.gateway_requests,
        subscriptions=settings.gateway_subscriptions,
        connect_seconds=settings.gateway_connect_seconds,
        stall_seconds=settings.stall_seconds,
        node_heartbeat_seconds=settings.node_heartbeat_seconds,
        frame_bytes=settings.max_frame_bytes,
        result_bytes=settings.max_result_bytes,
    )
    return Gateway(services, limits)


def edge(settings: Settings, services: Services, connections: Gateway | None) -> HttpEdge:
    """The HTTP edge, and behind one of its addresses the gateway, where there is one; without it, a worker's health alone."""
    names = frozenset(name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip())
    return HttpEdge(
        services,
        EdgeSettings(
            settings.max_body_bytes, settings.public_url, names, settings.open_metrics, settings.assets_url
        ),
        ROUTES if connections else OPS,
        (*SOCKETS, gateway_row(connections)) if connections else (),
    )


def gateway_row(connections: Gateway) -> SocketRow:
    """Edges are strangers to each other: here is where the gateway gets its address among the HTTP edge's sockets."""
    return SocketRow(
        gateways.PATH,
        lambda call: connections.serve(call.socket, call.principal),
        gateways.SAYS,
        is_open=True,
    )


async def load_demo(services: Services) -> list[str]:
    """The canvases for newcomers, those of them that are not there yet; which ones."""
    loaded: list[str] = []
    for one in reversed(
        demo.CANVASES
    ):  # so that the first of them is the newest, and stands on top wherever they are listed
        assets = {path: text.encode() for path, text in one.assets.items()}
        draft = Draft(canvas_id=one.canvas_id, title=one.title, spec=one.spec, assets=assets)
        with contextlib.suppress(AlreadyExists):
            try:
                await services.canvases.create(THE_OWNER, draft)
            except BadInput:
                await services.canvases.create(THE_OWNER, replace(draft, spec=one.at_rest.spec))
            loaded.insert(0, one.canvas_id)
    return loaded


def listening(host: str, port: int) -> socket.socket:
    """Taken before anything else is opened, so that a port in use is told at once."""
    return listen_on(host, port)


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, services: Services, on: socket.socket, *, is_api: bool = True
) -> AsyncGenerator[HttpServer]:
    """The API on its socket, or a worker's health alone; at the end streams close first, so that their viewers go elsewhere at once."""
    connections = gateway(settings, services) if is_api else None
    app = edge(settings, services, connections)
    server = HttpServer(
        app,
        on,
        max_frame_bytes=settings.max_frame_bytes,
        ping_seconds=settings.heartbeat_seconds,
        header_timeout_seconds=settings.header_timeout_seconds,
    )
    await server.start()
    if connections is not None:
        services.views.start()
        await services.actions.start()
        services.refresh.start()
    try:
        yield server
    finally:
        services.readiness.is_stopping = True
        if connections is not None:
            await connections.close()
            await services.refresh.stop()
            await services.actions.stop()
            await services.views.stop()
        for tails in (services.tails, services.threads, services.canvas_tails):
            await tails.close()
        await server.stop()
        await services.sign_in.close()
