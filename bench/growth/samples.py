"""Sample calls: for every route and method the arguments of one call, chosen at random over the filled rows.

The calls are derived from the tables of the product (`ROUTES`, `METHODS`); a row without a sample here, and
without a reason for its exclusion, is an error. Does not take times.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.gateway import ask
from bench.growth.filling import SPEC
from bench.growth.sizes import BIG_CANVAS, BIG_SESSIONS, RUNS_PER_BOARD, Size, canvas_id, run_id, session_id
from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from websockets.asyncio.client import ClientConnection

    from bench.wire import Connection, Server

LIVE_RUNS = 10
WAITING_SCRIPT = '{"script": [{"wait_ms": 3600000}]}'
REFRESHED_CANVASES = 5
DOCUMENTS = 10
DOCUMENT = "".join(f"- item {number} of a list\n" for number in range(200))
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2_900)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: of a route if it has a path, else of a method of the gateway."""

    method: str
    path: str | None = None
    body: Any = None


@dataclass(frozen=True, slots=True)
class Deletes:
    """The numbers of deleted sessions and canvases over all passes, so that nothing is deleted twice."""

    sessions: count[int] = field(default_factory=count)
    canvases: count[int] = field(default_factory=count)


@dataclass(slots=True)
class Client:
    """The one client of a filled database: its connections, and the ids of what it has made."""

    size: Size
    server: Server
    gateway: ClientConnection
    deletes: Deletes
    random: random.Random = field(default_factory=random.Random)
    live_runs: list[str] = field(default_factory=list[str])
    artifacts: list[str] = field(default_factory=list[str])
    assets: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _http: Connection | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connect to the HTTP server for the block."""
        async with self.server.connection() as self._http:
            yield

    @property
    def http(self) -> Connection:
        if self._http is None:
            raise RuntimeError("the client is not connected")
        return self._http

    async def send(self, call: Call) -> Any:
        if call.path is None:
            return await ask(self.gateway, call.method, **call.body)
        return await self.http.ask(call.method, call.path, call.body)

    async def set_up(self) -> None:
        """Start what calls and background tasks need: runs that do not end, and refresh jobs."""
        self.live_runs = [await self.start_run(f"live-{n}", WAITING_SCRIPT) for n in range(LIVE_RUNS)]
        for number in range(REFRESHED_CANVASES):
            spec = {**SPEC, "refresh": [{"id": "tick", "everyMs": 1_000, "action": "set"}]}
            await ask(self.gateway, "canvas.upsert", canvasId=f"refreshed-{number}", spec=spec)
        for number in range(DOCUMENTS):
            spec = {"version": 1, "mode": "markdown"}
            await ask(self.gateway, "canvas.upsert", canvasId=f"document-{number}", spec=spec)
            await self.http.ask("PUT", f"/api/documents/document-{number}", {"text": DOCUMENT})

    async def tear_down(self) -> None:
        for run in self.live_runs:
            await self.http.ask("POST", f"/api/runs/{run}/cancel")

    async def start_run(self, session: str, message: str) -> str:
        return await self.http.post_run(session, message)

    # -- random ids ------------------------------------------------------------------------------------------

    def run(self, step: int = 1) -> str:
        """Return a run whose number is a multiple of `step`, and whose session is not deleted by a call."""
        while True:
            number = self.random.randint(1, self.size.runs // step) * step
            if self.size.is_kept(number):
                return run_id(number)

    def run_with_board(self) -> str:
        return self.run(step=RUNS_PER_BOARD)

    def live_run(self) -> str:
        return self.random.choice(self.live_runs)

    def session(self) -> str:
        """Return a session; one in ten is big."""
        if self.random.random() < 0.1:
            return "big0"
        return session_id(self.random.randint(1, self.size.sessions - self.size.reserved))

    def canvas(self) -> str:
        """Return a canvas; one in ten is big, and some have refresh jobs."""
        chance = self.random.random()
        if chance < 0.1:
            return BIG_CANVAS
        if chance < 0.12:
            return f"refreshed-{self.random.randrange(REFRESHED_CANVASES)}"
        return canvas_id(self.random.randint(1, self.size.canvases - self.size.reserved))

    def document(self) -> str:
        return f"document-{self.random.randrange(DOCUMENTS)}"

    def session_to_delete(self) -> str:
        number = next(self.deletes.sessions)
        return f"big{number + 1}" if number < BIG_SESSIONS - 1 else session_id(self.size.sessions - number)

    def canvas_to_delete(self) -> str:
        return canvas_id(self.size.canvases - next(self.deletes.canvases))

    def new_name(self, prefix: str) -> str:
        return f"{prefix}-{self.random.getrandbits(80):x}"


Sample = Callable[[Client], Call | Awaitable[Call]]


# --- calls that need another call before --------------------------------------------------------------------


async def _cancel_run(client: Client) -> Call:
    run = await client.start_run(client.new_name("cancelled"), WAITING_SCRIPT)
    return Call("POST", f"/api/runs/{run}/cancel")


async def _download(client: Client) -> Call:
    if not client.artifacts:
        for _ in range(50):
            uploaded = await client.send(_upload(client))
            client.artifacts.append(uploaded["artifact_id"])
    return Call("GET", f"/api/artifacts/{client.random.choice(client.artifacts)}")


def _upload(client: Client) -> Call:
    return Call("POST", "/api/artifacts", client.random.randbytes(8) + PICTURE)


async def _view_file(client: Client) -> Call:
    page = await client.http.ask("GET", f"/canvas/main/{client.canvas()}")
    found = re.search(rb"/canvas-view/[^/\"]+/", page)
    if found is None:
        raise RuntimeError("the page of a canvas has no view")
    return Call("GET", f"{found[0].decode()}assets/index.html")


async def _pending(client: Client) -> tuple[str, str]:
    """Return a canvas and the id of its new confirmation."""
    canvas = client.canvas()
    asked = await ask(client.gateway, "canvas.action", canvasId=canvas, actionId="ask")
    return canvas, asked["confirmationId"]


async def _confirm(client: Client) -> Call:
    _, confirmation = await _pending(client)
    return _method("canvas.confirm", confirmationId=confirmation, approve=True)


async def _cancel_action(client: Client) -> Call:
    canvas, confirmation = await _pending(client)
    return _method("canvas.cancel", canvasId=canvas, eventId=confirmation)


async def _accept(client: Client) -> Call:
    canvas = client.canvas()
    revision = (await ask(client.gateway, "canvas.get", canvasId=canvas))["revision"]
    return _method("canvas.accept", canvasId=canvas, revision=revision)


async def _close(client: Client) -> Call:
    canvas = client.canvas()
    view = (await ask(client.gateway, "canvas.open", canvasId=canvas))["viewId"]
    return _method("canvas.close", canvasId=canvas, viewId=view)


async def _restore_document(client: Client) -> Call:
    document = client.document()
    await client.http.ask("POST", f"/api/documents/{document}/promote")
    history = await client.http.ask("GET", f"/api/documents/{document}/history?limit=50")
    revision_id = client.random.choice(history["versions"])["revision_id"]
    return Call("POST", f"/api/documents/{document}/restore", {"revision_id": revision_id})


async def _restore(client: Client) -> Call:
    canvas = client.canvas()
    spec = {**SPEC, "description": client.new_name("description")}
    await ask(client.gateway, "canvas.patch", canvasId=canvas, spec=spec)
    found = await ask(client.gateway, "canvas.versions", canvasId=canvas, limit=1)
    return _method("canvas.restore", canvasId=canvas, version=found["versions"][0]["version"])


def _put_asset(client: Client) -> Call:
    canvas, path = client.canvas(), f"assets/{client.new_name('note')}.txt"
    client.assets.append((canvas, path))
    return _method("canvas.asset.put", canvasId=canvas, path=path, text="a note\n" * 200)


def _get_asset(client: Client) -> Call:
    canvas, path = client.random.choice(client.assets)
    return _method("canvas.asset.get", canvasId=canvas, path=path)


def _delete_asset(client: Client) -> Call:
    canvas, path = client.assets.pop()
    return _method("canvas.asset.delete", canvasId=canvas, path=path)


async def _delete_secret(client: Client) -> Call:
    name = client.new_name("SECRET").replace("-", "_")
    await client.send(Call("PUT", f"/api/secrets/{name}", {"value": "sample value"}))
    return Call("DELETE", f"/api/secrets/{name}")


async def _change_person(client: Client) -> Call:
    name = await _add_person(client)
    return Call("PATCH", f"/api/people/{name}", {"disabled": True})


async def _delete_person(client: Client) -> Call:
    return Call("DELETE", f"/api/people/{await _add_person(client)}")


async def _delete_team(client: Client) -> Call:
    name = client.new_name("team")
    await client.send(Call("POST", "/api/teams", {"name": name, "admin": "owner"}))
    return Call("DELETE", f"/api/teams/{name}")


async def _add_person(client: Client) -> str:
    name = client.new_name("person")
    await client.send(Call("POST", "/api/people", {"name": name}))
    return name


async def _delete_token(client: Client) -> Call:
    made = await client.send(Call("POST", "/api/tokens", {"kind": "service"}))
    return Call("DELETE", f"/api/tokens/{made['token_id']}")


def _method(name: str, **params: Any) -> Call:
    return Call(name, None, params)


def _get(path: str) -> Call:
    return Call("GET", path)


def _board(board: str, client: Client, **edge: str) -> Call:
    body = {"key": "plan", "value": {"n": client.random.random()}, "source_node_id": "planner", **edge}
    return Call("POST", f"/api/runs/{client.live_run()}/{board}", body)


# --- the tables ---------------------------------------------------------------------------------------------
# A name may have a variant after " · ": the same route with a filter.

ROUTE_SAMPLES: Mapping[str, Sample] = {
    "POST /api/runs": lambda c: Call("POST", "/api/runs", {"session_id": c.session(), "message": "noop"}),
    "GET /api/runs": lambda _: _get("/api/runs"),
    "GET /api/runs · of a session": lambda c: _get(f"/api/runs?session_id={c.session()}"),
    "GET /api/runs · failed": lambda _: _get("/api/runs?statuses=failed"),
    "GET /api/runs · failed, of a session": lambda c: _get(
        f"/api/runs?session_id={c.session()}&statuses=failed"
    ),
    "GET /api/runs · later page": lambda c: _get(f"/api/runs?before={c.random.randint(1, c.size.runs)}"),
    "GET /api/runs/{run_id}": lambda c: _get(f"/api/runs/{c.run()}"),
    "POST /api/runs/{run_id}/cancel": _cancel_run,
    "POST /api/runs/{run_id}/whiteboard": lambda c: _board("whiteboard", c),
    "GET /api/runs/{run_id}/whiteboard": lambda c: _get(f"/api/runs/{c.run_with_board()}/whiteboard"),
    "POST /api/runs/{run_id}/blackboard": lambda c: _board("blackboard", c, edge_id="planner-writer"),
    "GET /api/runs/{run_id}/blackboard": lambda c: _get(f"/api/runs/{c.run_with_board()}/blackboard"),
    "POST /api/artifacts": _upload,
    "GET /api/artifacts/{artifact_id}": _download,
    "POST /api/sessions": lambda c: Call("POST", "/api/sessions", {"title": c.new_name("title")}),
    "GET /api/sessions": lambda _: _get("/api/sessions"),
    "GET /api/sessions/{session_id}": lambda c: _get(f"/api/sessions/{c.session()}"),
    "PATCH /api/sessions/{session_id}": lambda c: Call(
        "PATCH", f"/api/sessions/{c.session()}", {"title": c.new_name("title")}
    ),
    "DELETE /api/sessions/{session_id}": lambda c: Call("DELETE", f"/api/sessions/{c.session_to_delete()}"),
    "GET /api/sessions/{session_id}/messages": lambda c: _get(f"/api/sessions/{c.session()}/messages"),
    "POST /api/rpc": lambda c: Call(
        "POST", "/api/rpc", {"method": "canvas.get", "params": {"canvasId": c.canvas()}}
    ),
    "POST /api/canvases/{canvas_id}/snapshots": lambda c: Call(
        "POST", f"/api/canvases/{c.canvas()}/snapshots", PICTURE + c.random.randbytes(8)
    ),
    "GET /api/documents/{canvas_id}": lambda c: _get(f"/api/documents/{c.document()}"),
    "PUT /api/documents/{canvas_id}": lambda c: Call(
        "PUT", f"/api/documents/{c.document()}", {"text": DOCUMENT + c.new_name("line") + "\n"}
    ),
    "GET /api/documents/{canvas_id}/history": lambda c: _get(f"/api/documents/{c.document()}/history"),
    "GET /api/documents/{canvas_id}/diff": lambda c: _get(f"/api/documents/{c.document()}/diff"),
    "POST /api/documents/{canvas_id}/promote": lambda c: Call(
        "POST", f"/api/documents/{c.document()}/promote"
    ),
    "POST /api/documents/{canvas_id}/restore": _restore_document,
    "POST /api/documents/{canvas_id}/take-control": lambda c: Call(
        "POST", f"/api/documents/{c.document()}/take-control"
    ),
    "GET /api/tools": lambda _: _get("/api/tools"),
    "GET /api/settings": lambda _: _get("/api/settings"),
    "PUT /api/settings": lambda c: Call("PUT", "/api/settings", {"model": c.new_name("model")}),
    "GET /api/secrets": lambda _: _get("/api/secrets"),
    "PUT /api/secrets/{name}": lambda _: Call("PUT", "/api/secrets/SAMPLE", {"value": "sample value"}),
    "DELETE /api/secrets/{name}": _delete_secret,
    "GET /api/me": lambda _: _get("/api/me"),
    "GET /api/members": lambda _: _get("/api/members"),
    "GET /api/people": lambda _: _get("/api/people"),
    "POST /api/people": lambda c: Call("POST", "/api/people", {"name": c.new_name("person")}),
    "PATCH /api/people/{name}": _change_person,
    "DELETE /api/people/{name}": _delete_person,
    "POST /api/people/{name}/invitations": lambda _: Call("POST", "/api/people/owner/invitations"),
    "GET /api/teams": lambda _: _get("/api/teams"),
    "POST /api/teams": lambda c: Call("POST", "/api/teams", {"name": c.new_name("team"), "admin": "owner"}),
    "DELETE /api/teams/{name}": _delete_team,
    "POST /api/tokens": lambda _: Call("POST", "/api/tokens", {"kind": "service"}),
    "GET /api/tokens": lambda _: _get("/api/tokens"),
    "DELETE /api/tokens/{token_id}": _delete_token,
    "POST /api/settings/check": lambda _: Call("POST", "/api/settings/check"),
    "GET /api/audit": lambda _: _get("/api/audit"),
    "GET /api/audit · of an action": lambda _: _get("/api/audit?action=run.failed"),
    "GET /openapi.json": lambda _: _get("/openapi.json"),
    "GET /healthz": lambda _: _get("/healthz"),
    "GET /readyz": lambda _: _get("/readyz"),
    "GET /metrics": lambda _: _get("/metrics"),
    "GET /api/docs": lambda _: _get("/api/docs"),
    "GET /": lambda _: _get("/"),
    "GET /canvas/{agent_id}/{canvas_id}": lambda c: _get(f"/canvas/main/{c.canvas()}"),
    "GET /canvas-view/{token}/{file:path}": _view_file,
    "GET /ui/{file}": lambda _: _get("/ui/api.js"),
}

METHOD_SAMPLES: Mapping[str, Sample] = {
    "canvas.list": lambda _: _method("canvas.list"),
    "canvas.list · of an agent": lambda _: _method("canvas.list", agentId="main"),
    "canvas.list · at an offset": lambda c: _method("canvas.list", offset=c.random.randrange(500), limit=99),
    "canvas.get": lambda c: _method("canvas.get", canvasId=c.canvas()),
    "canvas.get · of an agent": lambda c: _method("canvas.get", canvasId=c.canvas(), agentId="main"),
    "canvas.create": lambda c: _method("canvas.create", canvasId=c.new_name("new"), spec=SPEC),
    "canvas.upsert": lambda c: _method("canvas.upsert", canvasId=c.canvas(), title=c.new_name("title")),
    "canvas.patch": lambda c: _method(
        "canvas.patch",
        canvasId=c.canvas(),
        statePatch=[{"op": "replace", "path": "/n", "value": c.random.random()}],
    ),
    "canvas.delete": lambda c: _method("canvas.delete", canvasId=c.canvas_to_delete()),
    "canvas.action": lambda c: _method("canvas.action", canvasId=c.canvas(), actionId="set"),
    "canvas.confirm": _confirm,
    "canvas.cancel": _cancel_action,
    "canvas.accept": _accept,
    "canvas.confirmations": lambda c: _method("canvas.confirmations", canvasId=c.canvas()),
    "canvas.records": lambda c: _method("canvas.records", canvasId=c.canvas()),
    "canvas.records · failed": lambda c: _method("canvas.records", canvasId=c.canvas(), status="failed"),
    "canvas.versions": lambda c: _method("canvas.versions", canvasId=c.canvas()),
    "canvas.restore": _restore,
    "canvas.input": lambda c: _method(
        "canvas.input", canvasId=c.canvas(), path="/note", value=c.new_name("note")
    ),
    "canvas.report": lambda c: _method("canvas.report", canvasId=c.canvas(), what="rate"),
    "canvas.open": lambda c: _method("canvas.open", canvasId=c.canvas()),
    "canvas.close": _close,
    "canvas.asset.put": _put_asset,
    "canvas.asset.get": _get_asset,
    "canvas.asset.list": lambda c: _method("canvas.asset.list", canvasId=c.canvas()),
    "canvas.asset.delete": _delete_asset,
    "tools.list": lambda _: _method("tools.list"),
    "tool.invoke": lambda c: _method("tool.invoke", tool="gsv__Echo", args={"value": c.new_name("value")}),
    "nodes.list": lambda _: _method("nodes.list"),
    "ping": lambda _: _method("ping"),
}

# Routes and methods that are not measured, each with its reason.
EXCLUDED: Mapping[str, str] = {
    "GET /api/runs/{run_id}/events": "a stream",
    "GET /sse/run/{run_id}": "a stream",
    "GET /sse/canvas/{canvas_id}": "a stream",
    "POST /api/chat/{session_id}": "a stream",
    "canvas.subscribe": "needs a connection",
    "canvas.unsubscribe": "needs a connection",
    "GET /api/oauth": "the benchmark describes no provider",
    "POST /api/oauth/{provider}/start": "the benchmark describes no provider",
    "DELETE /api/oauth/{provider}": "the benchmark describes no provider",
    "GET /api/oauth/{provider}/callback": "the benchmark describes no provider",
    "GET /auth/callback": "the benchmark describes no provider",
    "POST /sign-in": "of the sign-in page",
    "POST /sign-out": "of the sign-in page",
    "GET /invitation": "of the sign-in page",
    "POST /invitation": "of the sign-in page",
    "GET /sign-in/openid": "of the sign-in page",
    "GET /sign-in/openid/callback": "of the sign-in page",
    "POST /invitation/openid": "of the sign-in page",
    "POST /api/me/password": "computes a hash, which is slow on purpose",
    "POST /api/me/leave": "needs a token of a team",
    "PUT /api/members/{name}": "needs a token of a team",
    "DELETE /api/members/{name}": "needs a token of a team",
}


def all_samples() -> dict[str, Sample]:
    """Return the samples of every route and method. Raises LookupError for one without a sample."""
    samples = {**ROUTE_SAMPLES, **METHOD_SAMPLES}
    known = {f"{row.method} {row.path}" for row in ROUTES} | METHODS.keys()
    sampled = {name.partition(" · ")[0] for name in samples}
    if missing := sorted(known - sampled - EXCLUDED.keys()):
        raise LookupError(f"no sample call of {', '.join(missing)}: add one to bench/growth/samples.py")
    if unknown := sorted((sampled | EXCLUDED.keys()) - known):
        raise LookupError(f"no route or method is named {', '.join(unknown)}")
    return samples


async def make_call(sample: Sample, client: Client) -> Call:
    made = sample(client)
    return await made if inspect.isawaitable(made) else made
