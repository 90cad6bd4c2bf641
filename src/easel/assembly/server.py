"""Serve the services over HTTP and the gateway, from start to stop.

Owns the order in which connections, background work and the server end.
"""

import contextlib
import socket
from collections.abc import AsyncGenerator
from dataclasses import replace

from starlette.types import ASGIApp

from easel import demo
from easel.core.principal import Principal
from easel.core.web.hosts import parse_networks
from easel.edges.gateway import gateway as gateways
from easel.edges.gateway.connection import GatewayLimits
from easel.edges.gateway.gateway import Gateway
from easel.edges.http.app import EdgeSettings, build_app
from easel.edges.http.routes import OPS, PUBLIC, ROUTES, SOCKETS
from easel.edges.http.server import HttpServer, listen_on
from easel.edges.http.sockets import SocketRow
from easel.errors import AlreadyExists, BadInput
from easel.host.canvases.drafts import Draft
from easel.host.services import Services
from easel.ids import OWNER, UserId
from easel.settings import Settings

AUTHOR = Principal(OWNER, "owner", user_id=UserId(OWNER))  # of the demo canvases


def listen(host: str, port: int) -> socket.socket:
    """Bind the socket. Called before anything else is opened, so that a port in use is reported first."""
    return listen_on(host, port)


@contextlib.asynccontextmanager
async def serve(
    settings: Settings, services: Services, listening: socket.socket, *, is_api: bool = True
) -> AsyncGenerator[HttpServer]:
    """Serve the API, or only the health routes of a worker.

    At the end the streams are closed before the server, so that their readers reconnect to another instance
    at once.
    """
    gateway = build_gateway(settings, services) if is_api else None
    server = HttpServer(
        build_edge(settings, services, gateway),
        listening,
        max_frame_bytes=settings.max_frame_bytes,
        ping_seconds=settings.heartbeat_seconds,
        stall_seconds=settings.stall_seconds,
    )
    await server.start()
    if gateway is not None:
        services.usage.periodic.start()
        services.views.periodic.start()
        await services.actions.start()
        services.refresh.start()
        services.departures.periodic.start()
    try:
        yield server
    finally:
        services.readiness.is_stopping = True
        if gateway is not None:
            await gateway.close()
            await services.departures.periodic.stop()
            await services.refresh.stop()
            await services.actions.stop()
            await services.views.periodic.stop()
            await services.usage.periodic.stop()
        for tails in (services.tails, services.threads, services.canvas_tails, services.account_tails):
            await tails.close()
        await services.order.close()
        await server.stop()
        await services.revocation.close()


def build_gateway(settings: Settings, services: Services) -> Gateway:
    limits = GatewayLimits(
        connections=settings.max_streams,
        frame_bytes=settings.max_frame_bytes,
        result_bytes=settings.max_result_bytes,
    )
    return Gateway(services, limits)


def build_edge(settings: Settings, services: Services, gateway: Gateway | None) -> ASGIApp:
    """Build the HTTP edge with the gateway as a socket; without a gateway, the health routes alone."""
    hosts = frozenset(name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip())
    edge_settings = EdgeSettings(
        settings.max_body_bytes,
        settings.public_url,
        hosts,
        settings.open_metrics,
        settings.assets_url,
        parse_networks(settings.trusted_proxies, "EASEL_TRUSTED_PROXIES"),
    )
    if gateway is None:
        return build_app(services, edge_settings, OPS, ())
    row = SocketRow(gateways.PATH, PUBLIC, lambda call: gateway.serve(call.socket, call.principal))
    return build_app(services, edge_settings, ROUTES, (*SOCKETS, row))


async def load_demo(services: Services) -> list[str]:
    """Create the demo canvases that do not exist yet, and return their ids.

    The state of an existing one says whether this machine runs commands: bubblewrap may be installed by now.
    """
    loaded: list[str] = []
    local = services.nodes.local
    # Lists show the newest canvas first, so the first demo is created last.
    for listed in reversed(demo.CANVASES):
        canvas = listed if local is None else listed.on_machine(local.tools, local.bash)
        assets = {path: text.encode() for path, text in canvas.assets.items()}
        draft = Draft(canvas_id=canvas.canvas_id, title=canvas.title, spec=canvas.spec, assets=assets)
        try:
            try:
                await services.canvases.create(AUTHOR, draft)
            except BadInput:
                await services.canvases.create(AUTHOR, replace(draft, spec=canvas.without_refresh.spec))
        except AlreadyExists:
            await _update_commands_off(services, canvas)
        else:
            loaded.insert(0, canvas.canvas_id)
    return loaded


async def _update_commands_off(services: Services, canvas: demo.DemoCanvas) -> None:
    note = canvas.spec["state"].get(demo.COMMANDS_OFF)
    stored = await services.canvases.get(AUTHOR, canvas.canvas_id)
    if stored.canvas.state.get(demo.COMMANDS_OFF, note) != note:
        change = {"op": "replace", "path": f"/{demo.COMMANDS_OFF}", "value": note}
        await services.canvases.patch(
            AUTHOR, canvas.canvas_id, state_patch=[change], spec=None, title=None, expected_revision=None
        )
