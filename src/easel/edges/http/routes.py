"""The whole HTTP surface, one row each. The OpenAPI page and the router are made from it."""

from dataclasses import dataclass
from typing import Any

from easel.edges.http import (
    artifacts,
    audit,
    boards,
    canvas_page,
    canvases,
    chat,
    ops,
    pages,
    rpc,
    runs,
    sessions,
    streams,
)
from easel.edges.http.artifacts import ArtifactView
from easel.edges.http.audit import AuditPage, ListAudit
from easel.edges.http.boards import BoardView, BoardWritten, ReadBoard, WriteBlackboard, WriteWhiteboard
from easel.edges.http.calls import Access, Handler
from easel.edges.http.canvases import SnapshotView
from easel.edges.http.rpc import RpcCall
from easel.edges.http.sessions import (
    ChatMessage,
    CreateSession,
    ListMessages,
    ListSessions,
    MessagePage,
    RenameSession,
    SessionPage,
    SessionView,
)
from easel.edges.http.sockets import SocketRow
from easel.edges.http.wire import ListRuns, RunPage, RunStarted, RunView, StartRun, ToolList, Watch
from easel.errors import (
    ActionFailed,
    AlreadyExists,
    BadInput,
    BoardFull,
    Cancelled,
    ConfirmationClosed,
    CorruptData,
    CursorOutOfRange,
    Forbidden,
    HostError,
    IdempotencyConflict,
    InputConflict,
    NotFound,
    NotRunning,
    RangeNotSatisfiable,
    RevisionConflict,
    RunFinished,
    TimedOut,
    TooLarge,
    ToolFailed,
    TooMany,
    Unavailable,
    VersionConflict,
)


@dataclass(frozen=True, slots=True)
class Row:
    method: str
    path: str
    handler: Handler
    says: str
    access: Access = Access.USER
    body: type[Any] | None = None
    takes_file: bool = False  # bytes of any type, as the body or as the part `file` of a form
    query: type[Any] | None = None
    status: int = 200
    answer: type[Any] | str = "text/plain"  # a shape, or a media type; `*/*` is bytes, whole or by range
    errors: tuple[type[HostError], ...] = ()
    is_listed: bool = True  # whether the OpenAPI page shows it


_OPEN, _ADMIN = Access.OPEN, Access.ADMIN
_RPC_REFUSALS = (
    BadInput, Forbidden, NotFound, AlreadyExists, RevisionConflict, InputConflict, IdempotencyConflict, ConfirmationClosed, NotRunning, Cancelled,
    TooLarge, TooMany, ActionFailed, ToolFailed, CorruptData, Unavailable, TimedOut,
)  # fmt: skip
_BOARD_REFUSALS = (BadInput, NotFound, RunFinished, VersionConflict, TooLarge, BoardFull, Unavailable)

API: tuple[Row, ...] = (
    Row("POST", "/api/runs", runs.start_run, "Start a run. Durable when it is answered.", body=StartRun, status=202, answer=RunStarted,
        errors=(BadInput, IdempotencyConflict, TooLarge, Unavailable)),
    Row("GET", "/api/runs", runs.list_runs, "Runs, newest first.", query=ListRuns, answer=RunPage, errors=(BadInput, Unavailable)),
    Row("GET", "/api/runs/{run_id}", runs.get_run, "One run.", answer=RunView, errors=(NotFound, Unavailable)),
    Row("POST", "/api/runs/{run_id}/cancel", runs.cancel_run, "Ask a run to stop; does not wait for it.", status=202, answer=RunView,
        errors=(NotFound, RunFinished, Unavailable)),
    Row("GET", "/api/runs/{run_id}/events", streams.watch_run, "The run's log as server-sent events, live, resumable by Last-Event-ID.",
        query=Watch, answer="text/event-stream", errors=(BadInput, NotFound, CursorOutOfRange, TooMany, Unavailable)),
    Row("POST", "/api/runs/{run_id}/whiteboard", boards.write_whiteboard, "Write a value that is one for the whole run.",
        body=WriteWhiteboard, answer=BoardWritten, errors=_BOARD_REFUSALS),
    Row("GET", "/api/runs/{run_id}/whiteboard", boards.read_whiteboard, "The whiteboard, or one value of it.",
        query=ReadBoard, answer=BoardView, errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/runs/{run_id}/blackboard", boards.write_blackboard, "Write a value that belongs to one edge.",
        body=WriteBlackboard, answer=BoardWritten, errors=_BOARD_REFUSALS),
    Row("GET", "/api/runs/{run_id}/blackboard", boards.read_blackboard, "The blackboard, one edge of it, or one value of an edge.",
        query=ReadBoard, answer=BoardView, errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/artifacts", artifacts.upload_artifact, "Keep some bytes. The same bytes are kept once.",
        takes_file=True, status=201, answer=ArtifactView, errors=(BadInput, TooLarge, Unavailable)),
    Row("GET", "/api/artifacts/{artifact_id}", artifacts.download_artifact, "The bytes of an artifact, or a range of them.",
        answer="*/*", errors=(NotFound, RangeNotSatisfiable, CorruptData, Unavailable)),
    Row("GET", "/sse/run/{run_id}", streams.watch_run_state, "The run's state alone: its status and its boards.",
        query=Watch, answer="text/event-stream", errors=(BadInput, NotFound, CursorOutOfRange, TooMany, Unavailable)),
    Row("GET", "/sse/canvas/{canvas_id}", streams.watch_canvas, "A canvas's visuals alone, pictures by reference.",
        query=Watch, answer="text/event-stream", errors=(BadInput, NotFound, CursorOutOfRange, TooMany, Unavailable)),
    Row("POST", "/api/sessions", sessions.create_session, "Make a session.", body=CreateSession, status=201, answer=SessionView,
        errors=(BadInput, AlreadyExists, TooLarge, Unavailable)),
    Row("GET", "/api/sessions", sessions.list_sessions, "Sessions, latest message first.", query=ListSessions, answer=SessionPage,
        errors=(BadInput, Unavailable)),
    Row("GET", "/api/sessions/{session_id}", sessions.get_session, "One session.", answer=SessionView, errors=(NotFound, Unavailable)),
    Row("PATCH", "/api/sessions/{session_id}", sessions.rename_session, "Give a session another title.", body=RenameSession,
        answer=SessionView, errors=(BadInput, NotFound, TooLarge, Unavailable)),
    Row("DELETE", "/api/sessions/{session_id}", sessions.delete_session, "Delete a session with all that belongs to it.", status=204,
        errors=(NotFound, Unavailable)),
    Row("GET", "/api/sessions/{session_id}/messages", sessions.list_messages, "What was said, the newest page first, each page in order.",
        query=ListMessages, answer=MessagePage, errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/chat/{session_id}", sessions.chat_over_http, "For older clients: start a run and stream its log.", body=ChatMessage,
        answer="text/event-stream", errors=(BadInput, IdempotencyConflict, TooLarge, TooMany, Unavailable)),
    Row("POST", "/api/rpc", rpc.rpc, "A method of the gateway, such as canvas.get: its payload.", body=RpcCall,
        answer="application/json", errors=_RPC_REFUSALS),
    Row("POST", "/api/canvases/{canvas_id}/snapshots", canvases.add_snapshot, "Keep a picture of a canvas and tell its viewers.",
        takes_file=True, status=201, answer=SnapshotView, errors=(BadInput, NotFound, TooLarge, Unavailable)),
    Row("GET", "/api/tools", runs.list_tools, "The tools that agents can call.", answer=ToolList),
    Row("GET", "/api/audit", audit.list_audit, "The audit trail, newest first.", _ADMIN, query=ListAudit, answer=AuditPage,
        errors=(BadInput, Forbidden, Unavailable)),
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
    Row(
        "GET",
        "/",
        pages.home,
        "The home page, or the sign-in page.",
        _OPEN,
        answer="text/html",
        is_listed=False,
    ),
    Row(
        "POST", "/sign-in", pages.sign_in, "A token for a cookie.", _OPEN, answer="text/html", is_listed=False
    ),
    Row(
        "POST",
        "/sign-out",
        pages.sign_out,
        "End this browser's sign-in: its cookie, and all that is open by it.",
        _OPEN,
        answer="text/html",
        is_listed=False,
    ),
    Row(
        "GET",
        "/canvas/{agent_id}/{canvas_id}",
        canvas_page.canvas_page,
        "The page of a canvas, or the sign-in page.",
        _OPEN,
        answer="text/html",
        is_listed=False,
    ),
    Row(
        "GET",
        "/canvas-view/{token}/{file:path}",
        canvas_page.view_file,
        "What the page of a canvas is made of, by its view token.",
        _OPEN,
        answer="*/*",
        is_listed=False,
    ),
    Row(
        "GET",
        "/ui/{file}",
        pages.ui_file,
        "The parts of the pages.",
        _OPEN,
        answer="text/css",
        is_listed=False,
    ),
)

ROUTES: tuple[Row, ...] = (*API, *OPS, *PAGES)

SOCKETS: tuple[SocketRow, ...] = (
    SocketRow(
        "/ws/chat/{thread_id}",
        chat.chat,
        "The chat of a session: its narrative out, messages and cancels in.",
    ),
)
