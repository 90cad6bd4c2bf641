"""A user of Easel's HTTP interface in a journey: starts, reads and cancels runs on any of several servers.

Owns requests and the builders of scripted messages. Uses only the outside contract. Event streams are read by
`tests.support.sse`, the database by `tests.journeys.stored_runs`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from tests.support.sse import CursorBy, Follower
from tests.support.strict_http import STRICT_ASYNC
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from tests.support.processes import EaselProcess

TERMINAL = frozenset({"completed", "failed", "cancelled"})
REQUEST_SECONDS = 20.0
# Longer than any server may take to answer 503: a request that needs more is a hang and fails the drill.
LOOK_AGAIN_SECONDS = 0.03

Step = dict[str, Any]
_T = TypeVar("_T")


def script(*steps: Step) -> str:
    """Return a message that the scripted model plays step by step."""
    return json.dumps({"script": list(steps)})


def say(text: str) -> Step:
    return {"say": text}


def ticks(count: int, every_ms: int) -> Step:
    return {"ticks": count, "every_ms": every_ms}


def wait_ms(milliseconds: int) -> Step:
    return {"wait_ms": milliseconds}


def call(tool: str, **args: Any) -> Step:
    return {"call": tool, "args": args}


def ticked(count: int) -> str:
    """Return the final text of `ticks`."""
    return "".join(f"tick {number}\n" for number in range(1, count + 1))


def new_session() -> str:
    return f"journey-{secrets.token_hex(6)}"


def check_each(took: Collection[float], within: float, what: str) -> None:
    """Check that each took at most `within` seconds. One may take twice as long on a busy machine."""
    *others, longest = sorted(took)
    assert others[-1] < within, f"not within {within} s: {what}: {took}"
    assert longest < 2 * within, f"not even within {2 * within} s: {what}: {took}"


async def spread(asks: Sequence[Callable[[], Awaitable[_T]]], *, at_once: int) -> list[_T]:
    """Return all answers in order, with that many requests in flight."""
    room = asyncio.Semaphore(at_once)

    async def one(ask: Callable[[], Awaitable[_T]]) -> _T:
        async with room:
            return await ask()

    return await asyncio.gather(*(one(ask) for ask in asks))


class Client:
    """A client of the given servers; `at` selects one of them."""

    def __init__(self, *servers: EaselProcess) -> None:
        self.servers = servers
        self.token = servers[0].token
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=REQUEST_SECONDS,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
            event_hooks=STRICT_ASYNC,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    @property
    def base_urls(self) -> list[str]:
        return [server.base_url for server in self.servers]

    async def get(self, path: str, at: int = 0) -> httpx2.Response:
        return await self._http.get(self.base_urls[at] + path)

    async def post(self, path: str, body: object = None, at: int = 0, **headers: str) -> httpx2.Response:
        return await self._http.post(self.base_urls[at] + path, json=body, headers=headers)

    # -- runs

    async def ask(
        self, session_id: str, message: str, *, key: str | None = None, at: int = 0
    ) -> httpx2.Response:
        """Send one POST and return its answer."""
        body = {"session_id": session_id, "message": message} | ({"idempotency_key": key} if key else {})
        return await self.post("/api/runs", body, at)

    async def start(self, message: str, *, session_id: str | None = None, at: int = 0) -> str:
        """Start a run that must be accepted at the first attempt."""
        response = await self.ask(session_id or new_session(), message, at=at)
        assert response.status_code == 202, response.text
        assert response.json()["status"] == "queued"
        return response.json()["run_id"]

    async def start_surely(
        self, message: str, *, within: float, session_id: str | None = None, first_at: int = 0
    ) -> str:
        """Start a run as a careful client does during faults: retry with the same key, on the next server,
        until accepted.
        """
        session_id, key, turn = session_id or new_session(), secrets.token_hex(8), first_at
        deadline = time.monotonic() + within
        problem = ""
        while time.monotonic() < deadline:
            try:
                response = await self.ask(session_id, message, key=key, at=turn % len(self.servers))
            except httpx2.TransportError as failure:
                problem = repr(failure)
            else:
                if response.status_code == 202:
                    return response.json()["run_id"]
                problem = f"{response.status_code} {response.text}"
                assert response.status_code == 503, problem  # any other error is a failure of the drill
            turn += 1
            await asyncio.sleep(0.1)
        raise AssertionError(f"not accepted within {within} s: {problem}")

    async def run(self, run_id: str, at: int = 0) -> dict[str, Any]:
        response = await self.get(f"/api/runs/{run_id}", at)
        assert response.status_code == 200, response.text
        return response.json()

    async def cancel(self, run_id: str, at: int = 0) -> httpx2.Response:
        return await self.post(f"/api/runs/{run_id}/cancel", at=at)

    async def wait_for(
        self, run_id: str, statuses: Collection[str] = TERMINAL, *, within: float, at: int = 0
    ) -> dict[str, Any]:
        view: dict[str, Any] = {}

        async def is_there() -> bool:
            nonlocal view
            view = await self.run(run_id, at)
            return view["status"] in statuses

        await wait_for(is_there, within=within, what=f"{run_id} is {' or '.join(statuses)}")
        return view

    def follower(
        self, run_id: str, *, at: Sequence[int] | None = None, after: int = 0, by: CursorBy = "header"
    ) -> Follower:
        urls = self.base_urls if at is None else [self.base_urls[index] for index in at]
        return Follower(urls, run_id, self.token, after=after, by=by)
