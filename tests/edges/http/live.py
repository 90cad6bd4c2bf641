"""Easel in this process, behind a real socket: a database, one or two HTTP edges on it, and optionally a
worker.

Owns the thread and the uvloop of the server, so that tests are blocking functions, and the common requests:
start a run, read its stream.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import structlog
import uvloop

from easel.assembly.resources import open_resources
from easel.assembly.sandbox import choose_sandbox
from easel.assembly.server import serve
from easel.assembly.services import build_services, open_shared_services
from easel.assembly.worker import build_worker
from easel.edges.http.server import listen_on
from easel.host.auth.tokens import Tokens
from easel.ids import UserId
from easel.settings import Settings
from tests.support.postgres import execute
from tests.support.sse import Event, Parser
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, MutableMapping, Sequence
    from pathlib import Path

    from easel.assembly.services import SharedServices
    from easel.assembly.storage import Database
    from easel.host.ports import Tool
    from easel.host.services import Services
    from easel.host.tools.registry import ToolRegistry

START_SECONDS = 30.0
WAIT_SECONDS = 30.0

_T = TypeVar("_T")


def script(*steps: dict[str, Any]) -> str:
    """Return a message for the scripted model."""
    return json.dumps({"script": list(steps)})


def chatter(count: int) -> str:
    """Return a script with so many events; text and thoughts alternate, so that no deltas are joined."""
    return script(*({"think": f"thought {n}"} if n % 2 else {"say": f"word {n}. "} for n in range(count)))


WAITING = script({"say": "waiting"}, {"wait_ms": 600_000})


def in_time(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, and fail after WAIT_SECONDS: heartbeats keep a silent stream open."""
    deadline = time.monotonic() + WAIT_SECONDS
    for item in items:
        assert time.monotonic() < deadline, f"still {item!r:.300} after {WAIT_SECONDS} s"
        yield item


def cookie_name(base_url: str) -> str:
    """Return the name of the cookie that a browser has for this address."""
    return f"easel-{urlsplit(base_url).port}"


def new_session() -> str:
    return f"edge-{secrets.token_hex(6)}"


@contextlib.contextmanager
def capture_log() -> Iterator[list[dict[str, Any]]]:
    """Collect the log events of this process instead of printing them."""
    events: list[dict[str, Any]] = []

    def collect(_: object, method: str, event: MutableMapping[str, Any]) -> str:
        events.append({"level": method, **event})
        raise structlog.DropEvent

    structlog.configure(processors=[collect], cache_logger_on_first_use=False)
    try:
        yield events
    finally:
        structlog.reset_defaults()


@dataclass
class Instance:
    """One HTTP edge: its address, its services and its store."""

    base_url: str
    services: Services
    opened: Database
    tools: ToolRegistry
    shared: SharedServices


@dataclass(repr=False)
class LiveEasel:
    folder: Path
    database_url: str = ""
    edges: int = 1
    with_worker: bool = True
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    tools: Sequence[Tool] = ()
    send_buffer: int | None = None  # of the kernel for each connection; else it grows to megabytes
    token: str = field(default_factory=lambda: f"owner-{secrets.token_urlsafe(18)}")
    instances: list[Instance] = field(default_factory=list[Instance])

    # -- start and stop

    def __enter__(self) -> LiveEasel:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="easel", daemon=True)
        self._thread.start()
        self._is_up: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stop = asyncio.Event()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), self._loop)
        self._life.add_done_callback(self._report_failed_start)
        try:
            self._is_up.result(START_SECONDS)
        except BaseException:
            self._end()
            raise
        self._http = httpx2.Client(
            headers=self.bearer,
            timeout=WAIT_SECONDS,
            limits=httpx2.Limits(max_connections=100),
            event_hooks=STRICT,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            self._life.result(START_SECONDS)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def _report_failed_start(self, life: concurrent.futures.Future[None]) -> None:
        if not self._is_up.done() and (problem := life.exception()):
            self._is_up.set_exception(problem)

    async def _live(self) -> None:
        settings = Settings(
            data=str(self.folder),
            token=self.token,
            database_url=self.database_url,
            **{"drain_seconds": 0.0, "sign_in_failures": 1_000_000, **self.settings},
        )
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(self.edges):
                resources = await stack.enter_async_context(open_resources(settings))
                sandbox = choose_sandbox(settings)
                shared = await stack.enter_async_context(open_shared_services(resources, sandbox, self.tools))
                services = build_services(shared)
                listener = listen_on("127.0.0.1", 0)
                if self.send_buffer:  # connections inherit it
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
                server = await stack.enter_async_context(serve(settings, services, listener))
                host, port = server.address
                self.instances.append(
                    Instance(f"http://{host}:{port}", services, resources.database, shared.tools, shared)
                )
            if self.database_url:
                for instance in self.instances:
                    notifier: Any = instance.opened.notifier
                    await notifier.connected.wait()  # earlier notifications are lost
            self._is_up.set_result(None)
            if self.with_worker:
                first = self.instances[0]
                await build_worker(first.shared).work(self._stop)
            else:
                await self._stop.wait()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    # -- requests

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def base_url(self) -> str:
        return self.instances[0].base_url

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.base_url.removeprefix("http://").partition(":")
        return host, int(port)

    def ask(self, method: str, path: str, *, at: int = 0, **how: Any) -> httpx2.Response:
        """Send a request of the owner and return the response, also an error."""
        return self._http.request(method, self.instances[at].base_url + path, **how)

    def get(self, path: str, *, at: int = 0, **how: Any) -> httpx2.Response:
        """Read the response to its end, which must come within WAIT_SECONDS."""
        with self._http.stream("GET", self.instances[at].base_url + path, **how) as answer:
            body = b"".join(in_time(answer.iter_bytes()))
            return httpx2.Response(
                answer.status_code, headers=answer.headers, content=body, request=answer.request
            )

    def post(self, path: str, body: Any = None, *, at: int = 0, **how: Any) -> httpx2.Response:
        return self.ask("POST", path, at=at, **({"json": body} if body is not None else {}), **how)

    def stranger(self) -> httpx2.Client:
        """Return a client without token and cookie."""
        return httpx2.Client(base_url=self.base_url, timeout=WAIT_SECONDS, event_hooks=STRICT)

    # -- runs

    def start(self, message: str = "noop", session_id: str | None = None, *, at: int = 0) -> str:
        answer = self.post(
            "/api/runs", {"session_id": session_id or new_session(), "message": message}, at=at
        )
        assert answer.status_code == 202, answer.text
        return answer.json()["run_id"]

    def finish(self, message: str = "noop", session_id: str | None = None) -> str:
        """Start a run, wait for its end, and return its id."""
        run_id = self.start(message, session_id)
        self.events(run_id)
        return run_id

    def finish_unread(self, message: str) -> str:
        """Start a run and wait for its end without reading its log."""
        run_id = self.start(message)
        status = f"select status from runs where run_id = '{run_id}'"
        wait_for_sync(
            lambda: self.sql(status) == [{"status": "completed"}],
            within=3 * WAIT_SECONDS,
            what=f"{run_id} ends",
        )
        return run_id

    def view(self, run_id: str, *, at: int = 0) -> dict[str, Any]:
        answer = self.get(f"/api/runs/{run_id}", at=at)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cancel(self, run_id: str, *, at: int = 0) -> httpx2.Response:
        return self.post(f"/api/runs/{run_id}/cancel", at=at)

    def stream(
        self, run_id: str, *, at: int = 0, last_event_id: object = None, **query: str
    ) -> httpx2.Response:
        """Read a stream to its end; the cursor is sent in a header."""
        headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
        return self.get(f"/api/runs/{run_id}/events", at=at, headers=headers, params=query)

    def events(self, run_id: str, **how: Any) -> list[Event]:
        answer = self.stream(run_id, **how)
        assert answer.status_code == 200, answer.text
        return [item for item in Parser().feed(answer.content) if isinstance(item, Event)]

    def stream_start(self, run_id: str, *, at: int = 0) -> None:
        """Wait for the first delta of the run, so that it is running."""
        with self._http.stream("GET", f"{self.instances[at].base_url}/api/runs/{run_id}/events") as answer:
            for line in in_time(answer.iter_lines()):
                if line == "event: message.delta":
                    return
        raise AssertionError(f"{run_id} ended before its first delta")

    # -- direct access to the store

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Execute an SQL statement."""
        if self.database_url:
            return execute(self.database_url, text)
        database: Any = self.instances[0].opened
        return self.do(
            database.write(lambda connection: [dict(row) for row in connection.execute(text).fetchall()])
        )

    def add_person(self, name: str) -> None:
        """Create a person with an account of the same id."""
        self.sql(f"insert into accounts (account_id) values ('{name}')")
        self.sql(f"insert into people (user_id) values ('{name}')")

    def add_team(self, name: str, **roles: str) -> None:
        """Create a team with the roles of its members."""
        self.sql(f"insert into accounts (account_id, kind) values ('{name}', 'team')")
        for user, role in roles.items():
            self.sql(
                f"insert into team_members (account_id, user_id, role) values ('{name}', '{user}', '{role}')"
            )

    def new_cookie(self, user: str = "owner") -> str:
        """Sign a person in, and return the header with the cookie of the first instance."""
        value = self.do(self.instances[0].services.cookies.issue(UserId(user)))
        return f"{cookie_name(self.base_url)}={value}"

    def new_token(self, kind: str, user: str = "owner", **options: Any) -> tuple[str, str]:
        """Create a token. Returns its id, and the token."""
        made, secret = self.do(self._tokens.create(user, kind, **options))
        return made.token_id, secret

    def revoke_token(self, token_id: str) -> None:
        self.do(self._tokens.revoke(token_id))

    @property
    def _tokens(self) -> Tokens:
        return Tokens(self.instances[0].opened.tokens, self.instances[0].services.audit)

    def prune(self) -> int:
        """Apply retention to every finished run."""
        return len(self.do(self.instances[0].opened.runs.prune(-1)))
