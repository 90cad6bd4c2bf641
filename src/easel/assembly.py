"""Puts the parts together: the only module that knows everyone.

A process is its ground, and on it an API, a worker, or both. What is opened here is closed here, in the other order.
"""

import contextlib
import socket
from collections.abc import AsyncGenerator, Sequence

from easel.core.canvas.actions import Confirm
from easel.core.canvas.spec import SpecLimits
from easel.core.run.boards import Limits
from easel.edges.gateway import gateway as gateways
from easel.edges.gateway.gateway import Gateway, GatewayLimits
from easel.edges.http.app import EdgeSettings, HttpEdge
from easel.edges.http.routes import OPS, ROUTES, SOCKETS
from easel.edges.http.server import HttpServer, listen_on
from easel.edges.http.sockets import SocketRow
from easel.ground import Database, Ground, Reached, ground, open_blobs, open_database, owner_token, verified
from easel.host.board_tools import board_tools
from easel.host.boards import Boards
from easel.host.canvas_actions import ActionLimits, CanvasActions
from easel.host.canvas_assets import AssetLimits, CanvasAssets
from easel.host.canvas_changes import CanvasChanges
from easel.host.canvas_library import CanvasLibrary
from easel.host.canvas_pages import CanvasPages
from easel.host.canvas_views import CanvasViews
from easel.host.canvas_work import CanvasWork
from easel.host.host import Host
from easel.host.native_tools import native_tools
from easel.host.ports import LogSource, Tool
from easel.host.readiness import Readiness
from easel.host.run_queue import RunQueue
from easel.host.run_worker import RunWorker
from easel.host.sessions import Sessions
from easel.host.sign_in import SignIn
from easel.host.tails import CANVASES, RUNS, THREADS, Kind, Room, Tails
from easel.host.tool_loop import ToolLoop
from easel.host.toolbox import Toolbox
from easel.ids import new_worker_id
from easel.llm.scripted import ScriptedModel
from easel.settings import Settings

__all__ = [  # with what a command needs of the ground, so that it knows this module alone
    "Database",
    "Ground",
    "Reached",
    "ground",
    "host",
    "listening",
    "open_blobs",
    "open_database",
    "serving",
    "toolbox",
    "verified",
    "worker",
]


def boards(on: Ground) -> Boards:
    limits = Limits(on.settings.max_board_bytes, on.settings.max_board_keys, on.settings.max_board_total_bytes)
    return Boards(on.database.boards, on.artifacts, on.database.bell, limits)


def canvas_assets(on: Ground) -> CanvasAssets:
    limits = AssetLimits(on.settings.max_asset_bytes, on.settings.max_canvas_assets)
    return CanvasAssets(on.database.canvases, canvas_changes(on), on.blobs, limits)


def canvas_changes(on: Ground) -> CanvasChanges:
    return CanvasChanges(on.database.canvases, on.blobs, on.database.bell)


def toolbox(on: Ground, more: Sequence[Tool] = ()) -> Toolbox:
    return Toolbox(
        [*native_tools(), *board_tools(boards(on)), *more],
        audit=on.audit,
        timeout_seconds=on.settings.tool_timeout_seconds,
        max_result_bytes=on.settings.max_result_bytes,
    )


def worker(on: Ground, tools: Toolbox) -> RunWorker:
    settings = on.settings
    return RunWorker(
        new_worker_id(),
        on.database.runs,
        on.artifacts,
        on.database.bell,
        ToolLoop(ScriptedModel(), tools, max_steps=settings.max_steps),
        slots=settings.worker_runs,
        claim_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        drain_seconds=settings.drain_seconds,
        run_timeout_seconds=settings.run_timeout_seconds,
        retention_seconds=settings.retention_days * 86_400,
        audit=on.audit,
        also=[on.artifacts.sweep_forever, canvas_assets(on).sweep_forever],
    )


def host(on: Ground, tools: Toolbox) -> Host:
    settings, opened, bell = on.settings, on.database, on.database.bell
    token = owner_token(settings)
    on.audit.hide(token)
    sign_in = SignIn(token)
    limits = {"max_attempts": settings.max_attempts, "max_message_bytes": settings.max_message_bytes}
    queue = RunQueue(opened.runs, on.artifacts, bell, on.audit, **limits)
    room = Room(settings.max_streams)
    changes, assets = canvas_changes(on), canvas_assets(on)

    def tails(kind: Kind, source: LogSource) -> Tails:
        return Tails(
            kind,
            source,
            bell,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            stall_seconds=settings.stall_seconds,
            room=room,
            window=settings.tail_window,
        )

    runs = tails(RUNS, opened.runs)
    return Host(
        sign_in=sign_in,
        audit=on.audit,
        artifacts=on.artifacts,
        boards=boards(on),
        queue=queue,
        sessions=Sessions(opened.sessions, queue, bell, on.audit),
        canvases=CanvasLibrary(
            opened.canvases,
            changes,
            assets,
            on.artifacts,
            tools,
            bell=bell,
            audit=on.audit,
            limits=spec_limits(settings),
            floor=Confirm(settings.confirm_floor),
        ),
        actions=CanvasActions(
            opened.canvas_actions,
            changes,
            CanvasWork(tools, queue, runs, on.artifacts, answer_seconds=settings.run_timeout_seconds),
            on.artifacts,
            audit=on.audit,
            limits=action_limits(settings),
            instance_id=new_worker_id(),
            is_alone=not settings.on_postgres,
        ),
        assets=assets,
        views=CanvasViews(opened.canvases, changes, view_seconds=settings.view_seconds),
        pages=CanvasPages(
            changes,
            on.artifacts,
            on.audit,
            key=sign_in.key("canvas view"),
            token_seconds=settings.view_token_seconds,
            max_state_bytes=settings.max_state_bytes,
        ),
        tails=runs,
        threads=tails(THREADS, opened.sessions),
        canvas_tails=tails(CANVASES, opened.canvases),
        readiness=Readiness(opened.runs),
        tools=tools,
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
        floor=Confirm(settings.confirm_floor),
    )


def gateway(settings: Settings, stories: Host) -> Gateway:
    limits = GatewayLimits(
        connections=settings.max_streams,
        requests=settings.gateway_requests,
        subscriptions=settings.gateway_subscriptions,
        connect_seconds=settings.gateway_connect_seconds,
        stall_seconds=settings.stall_seconds,
    )
    return Gateway(stories, limits)


def edge(settings: Settings, stories: Host, connections: Gateway | None) -> HttpEdge:
    """The HTTP edge, and behind one of its addresses the gateway, where there is one; without it, a worker's health alone."""
    names = frozenset(name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip())
    return HttpEdge(
        stories,
        EdgeSettings(settings.max_body_bytes, settings.public_url, names, settings.open_metrics, settings.assets_url),
        ROUTES if connections else OPS,
        (*SOCKETS, gateway_row(connections)) if connections else (),
    )


def gateway_row(connections: Gateway) -> SocketRow:
    """Edges are strangers to each other: here is where the gateway gets its address among the HTTP edge's sockets."""
    return SocketRow(gateways.PATH, lambda call: connections.serve(call.socket, call.who), gateways.SAYS, is_open=True)


def listening(host: str, port: int) -> socket.socket:
    """Taken before anything else is opened, so that a port in use is told at once."""
    return listen_on(host, port)


@contextlib.asynccontextmanager
async def serving(settings: Settings, stories: Host, on: socket.socket, *, is_api: bool = True) -> AsyncGenerator[HttpServer]:
    """The API on its socket, or a worker's health alone; at the end streams close first, so that their viewers go elsewhere at once."""
    connections = gateway(settings, stories) if is_api else None
    app = edge(settings, stories, connections)
    server = HttpServer(app, on, max_frame_bytes=settings.max_body_bytes, ping_seconds=settings.heartbeat_seconds)
    await server.start()
    if connections is not None:
        stories.views.start()
        await stories.actions.start()
    try:
        yield server
    finally:
        stories.readiness.is_stopping = True
        if connections is not None:
            await connections.close()
            await stories.actions.stop()
            await stories.views.stop()
        for tails in (stories.tails, stories.threads, stories.canvas_tails):
            await tails.close()
        await server.stop()
