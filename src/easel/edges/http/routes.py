"""The whole HTTP surface, one row each. The OpenAPI page and the router are made from it."""

from dataclasses import dataclass
from typing import Any

from easel.edges.http import ops, pages, runs
from easel.edges.http.calls import Access, Handler
from easel.edges.http.wire import ListRuns, RunPage, RunStarted, RunView, StartRun, ToolList, WatchRun
from easel.errors import (
    BadInput,
    CursorGone,
    HostError,
    IdempotencyConflict,
    NotFound,
    RunFinished,
    TooLarge,
    TooMany,
    Unavailable,
)


@dataclass(frozen=True, slots=True)
class Row:
    method: str
    path: str
    handler: Handler
    says: str
    access: Access = Access.USER
    body: type[Any] | None = None
    query: type[Any] | None = None
    status: int = 200
    answer: type[Any] | str = "text/plain"  # a shape, or a media type
    errors: tuple[type[HostError], ...] = ()
    is_listed: bool = True  # whether the OpenAPI page shows it


_OPEN, _ADMIN = Access.OPEN, Access.ADMIN

API: tuple[Row, ...] = (
    Row("POST", "/api/runs", runs.start_run, "Start a run. Durable when it is answered.", body=StartRun, status=202, answer=RunStarted,
        errors=(BadInput, IdempotencyConflict, TooLarge, Unavailable)),
    Row("GET", "/api/runs", runs.list_runs, "Runs, newest first.", query=ListRuns, answer=RunPage, errors=(BadInput, Unavailable)),
    Row("GET", "/api/runs/{run_id}", runs.get_run, "One run.", answer=RunView, errors=(NotFound, Unavailable)),
    Row("POST", "/api/runs/{run_id}/cancel", runs.cancel_run, "Ask a run to stop; does not wait for it.", status=202, answer=RunView,
        errors=(NotFound, RunFinished, Unavailable)),
    Row("GET", "/api/runs/{run_id}/events", runs.watch_run, "The run's log as server-sent events, live, resumable by Last-Event-ID.",
        query=WatchRun, answer="text/event-stream", errors=(BadInput, NotFound, CursorGone, TooMany, Unavailable)),
    Row("GET", "/api/tools", runs.list_tools, "The tools that agents can call.", answer=ToolList),
    Row("GET", "/openapi.json", pages.openapi_json, "This description.", answer="application/json"),
)  # fmt: skip

# What every process has, a worker too.
OPS: tuple[Row, ...] = (
    Row("GET", "/healthz", ops.healthz, "Whether the process lives.", _OPEN),
    Row("GET", "/readyz", ops.readyz, "Whether it can do durable work now.", _OPEN, errors=(Unavailable,)),
    Row("GET", "/metrics", ops.metrics, "Prometheus metrics.", _ADMIN),
)

PAGES: tuple[Row, ...] = (
    Row("GET", "/api/docs", pages.api_page, "The API page.", answer="text/html", is_listed=False),
    Row("GET", "/", pages.home, "The home page, or the sign-in page.", _OPEN, answer="text/html", is_listed=False),
    Row("POST", "/sign-in", pages.sign_in, "A token for a cookie.", _OPEN, answer="text/html", is_listed=False),
    Row("POST", "/sign-out", pages.sign_out, "Forget the cookie.", _OPEN, answer="text/html", is_listed=False),
    Row("GET", "/ui/{file}", pages.ui_file, "The parts of the pages.", _OPEN, answer="text/css", is_listed=False),
)

ROUTES: tuple[Row, ...] = (*API, *OPS, *PAGES)
