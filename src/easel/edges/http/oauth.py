"""Connections to OAuth providers over HTTP. The callback answers with a page; no answer has a token."""

from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response

from easel.edges.http.calls import Call, authenticate_visitor
from easel.edges.http.pages import fill_page
from easel.errors import HostError, NotFound
from easel.host.oauth.connections import Callback, Connections, ProviderState


class ConnectionView(Struct):
    connected_at: datetime
    connected_by: Annotated[str, Meta(description="The person who signed it in.")]
    scopes: str
    expires_at: Annotated[
        datetime | None, Meta(description="When the access token is refreshed; null: never.")
    ]
    must_reconnect: Annotated[bool, Meta(description="The provider has ended it; connect it again.")]


class ProviderView(Struct):
    provider: str
    connection: Annotated[ConnectionView | None, Meta(description="null: not connected.")]


class ProviderList(Struct):
    providers: list[ProviderView]


class FlowStarted(Struct):
    authorize_url: Annotated[str, Meta(description="Open it in the browser that is signed in to Easel.")]


async def list_providers(call: Call) -> ProviderList:
    connections = call.host.connections
    states = [] if connections is None else await connections.list_states(call.principal)
    return ProviderList([_view(state) for state in states])


async def start_flow(call: Call) -> FlowStarted:
    name, origin = call.path["provider"], f"http://{call.request.headers.get('host', '')}"
    return FlowStarted(await _connections(call).start(call.principal, name, origin))


async def remove_connection(call: Call) -> None:
    await _connections(call).remove(call.principal, call.path["provider"])


async def finish_flow(call: Call) -> Response:
    """Answer a callback with a page. A loopback callback may first be sent to the host of the flow. RX-42"""
    try:
        connections, callback = _connections(call), _callback_of(call.request)
        if origin := await connections.find_other_origin(callback):
            url = f"{origin}{callback.path}?{urlsplit(str(call.request.url)).query}"
            return RedirectResponse(url, 303, {"cache-control": "no-store"})
        provider = await connections.finish(await authenticate_visitor(call), callback)
    except HostError as problem:
        return _page("Not connected", problem.message, problem.http)
    return _page("Connected", f"{provider} is connected. The next step of a run uses it.", 200)


def _page(title: str, text: str, status: int) -> Response:
    page = fill_page("refusal.html", title=title, problem=text, link="Back to Easel")
    return HTMLResponse(page, status, {"cache-control": "no-store", "referrer-policy": "no-referrer"})


def _callback_of(request: HTTPConnection) -> Callback:
    query = request.query_params
    return Callback(
        path=request.scope["path"],
        host=request.headers.get("host", ""),
        state=query.get("state", ""),
        code=query.get("code"),
        error=query.get("error"),
        issuer=query.get("iss"),
    )


def _connections(call: Call) -> Connections:
    if call.host.connections is None:
        raise NotFound(what="provider", id=call.path.get("provider", "")[:100])
    return call.host.connections


def _view(state: ProviderState) -> ProviderView:
    stored = state.connection
    if stored is None:
        return ProviderView(state.provider.name, None)
    view = ConnectionView(
        connected_at=stored.connected_at,
        connected_by=stored.user_id,
        scopes=stored.scopes,
        expires_at=stored.expires_at,
        must_reconnect=stored.must_reconnect,
    )
    return ProviderView(state.provider.name, view)
