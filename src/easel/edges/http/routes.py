"""The HTTP surface as a table. The router and the OpenAPI description are generated from it."""

from dataclasses import dataclass
from typing import Any

from easel.edges.decoding import NoParams
from easel.edges.http import (
    artifacts,
    audit,
    boards,
    canvas_page,
    canvases,
    chat,
    documents,
    ops,
    pages,
    rpc,
    runs,
    secrets,
    sessions,
    settings,
    streams,
)
from easel.edges.http.artifacts import ArtifactView
from easel.edges.http.audit import AuditPage, ListAudit
from easel.edges.http.boards import BoardView, BoardWritten, ReadBoard, WriteBlackboard, WriteWhiteboard
from easel.edges.http.calls import Access, Handler
from easel.edges.http.canvases import SnapshotView
from easel.edges.http.documents import (
    CompareRevisions,
    DifferenceView,
    DocumentVersionsQuery,
    DocumentView,
    PromotedView,
    PutDocument,
    RestoreDocument,
    SavedDocument,
    VersionPage,
)
from easel.edges.http.rpc import RpcCall
from easel.edges.http.secrets import ListSecrets, SecretPage, SetSecret
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
from easel.edges.http.settings import ChangeSettings, ModelCheckView, SettingsView
from easel.edges.http.sockets import SocketRow
from easel.edges.http.wire import (
    ListRuns,
    ListTools,
    RunPage,
    RunStarted,
    RunView,
    StartRun,
    StreamQuery,
    ToolList,
)
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
    SecretsUnavailable,
    TextConflict,
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
    summary: str
    access: Access = Access.USER
    body: type[Any] | None = None
    takes_file: bool = False  # any bytes, as the body or as the part `file` of a form
    query: type[Any] | None = None
    status: int = 200
    response: type[Any] | str = "text/plain"  # a struct or a media type; `*/*`: any bytes, also by range
    errors: tuple[type[HostError], ...] = ()


_OPEN, _ADMIN = Access.OPEN, Access.ADMIN
_RPC_ERRORS = (
    BadInput, Forbidden, NotFound, AlreadyExists, RevisionConflict, InputConflict, IdempotencyConflict,
    ConfirmationClosed, NotRunning, Cancelled, TooLarge, TooMany, ActionFailed, ToolFailed, CorruptData,
    Unavailable, TimedOut,
)  # fmt: skip
_STREAM_ERRORS = (BadInput, NotFound, CursorOutOfRange, TooMany, Unavailable)
_DOCUMENT_ERRORS = (NotFound, Unavailable)
_BOARD_ERRORS = (BadInput, NotFound, RunFinished, VersionConflict, TooLarge, BoardFull, Unavailable)

API: tuple[Row, ...] = (
    Row("POST", "/api/runs", runs.start_run, "Start a run. It is stored when the response is sent.",
        body=StartRun, status=202, response=RunStarted,
        errors=(BadInput, IdempotencyConflict, TooLarge, Unavailable)),
    Row("GET", "/api/runs", runs.list_runs, "List runs, newest first.", query=ListRuns, response=RunPage,
        errors=(BadInput, Unavailable)),
    Row("GET", "/api/runs/{run_id}", runs.get_run, "Get a run.", response=RunView,
        errors=(NotFound, Unavailable)),
    Row("POST", "/api/runs/{run_id}/cancel", runs.cancel_run,
        "Request that a run stops, without waiting for it.", body=NoParams, status=202, response=RunView,
        errors=(NotFound, RunFinished, Unavailable)),
    Row("GET", "/api/runs/{run_id}/events", streams.watch_run,
        "Stream the run's log as server-sent events; resumable by Last-Event-ID.", query=StreamQuery,
        response="text/event-stream", errors=_STREAM_ERRORS),
    Row("POST", "/api/runs/{run_id}/whiteboard", boards.write_whiteboard, "Write a value for the whole run.",
        body=WriteWhiteboard, response=BoardWritten, errors=_BOARD_ERRORS),
    Row("GET", "/api/runs/{run_id}/whiteboard", boards.read_whiteboard,
        "Read the whiteboard, or one value of it.", query=ReadBoard, response=BoardView,
        errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/runs/{run_id}/blackboard", boards.write_blackboard, "Write a value for one edge.",
        body=WriteBlackboard, response=BoardWritten, errors=_BOARD_ERRORS),
    Row("GET", "/api/runs/{run_id}/blackboard", boards.read_blackboard,
        "Read the blackboard, one edge of it, or one value of an edge.", query=ReadBoard, response=BoardView,
        errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/artifacts", artifacts.upload_artifact, "Store bytes. The same bytes are stored once.",
        takes_file=True, status=201, response=ArtifactView, errors=(BadInput, TooLarge, Unavailable)),
    Row("GET", "/api/artifacts/{artifact_id}", artifacts.download_artifact,
        "Get the bytes of an artifact, or a range of them.", response="*/*",
        errors=(NotFound, RangeNotSatisfiable, CorruptData, Unavailable)),
    Row("GET", "/sse/run/{run_id}", streams.watch_run_state, "Stream the run's status and its boards.",
        query=StreamQuery, response="text/event-stream", errors=_STREAM_ERRORS),
    Row("GET", "/sse/canvas/{canvas_id}", streams.watch_canvas,
        "Stream a canvas's changes, with snapshots by reference.", query=StreamQuery,
        response="text/event-stream", errors=_STREAM_ERRORS),
    Row("POST", "/api/sessions", sessions.create_session, "Create a session.", body=CreateSession, status=201,
        response=SessionView, errors=(BadInput, AlreadyExists, TooLarge, Unavailable)),
    Row("GET", "/api/sessions", sessions.list_sessions, "List sessions, latest message first.",
        query=ListSessions, response=SessionPage, errors=(BadInput, Unavailable)),
    Row("GET", "/api/sessions/{session_id}", sessions.get_session, "Get a session.", response=SessionView,
        errors=(NotFound, Unavailable)),
    Row("PATCH", "/api/sessions/{session_id}", sessions.rename_session, "Change the title of a session.",
        body=RenameSession, response=SessionView, errors=(BadInput, NotFound, TooLarge, Unavailable)),
    Row("DELETE", "/api/sessions/{session_id}", sessions.delete_session,
        "Delete a session with its messages and runs.", status=204, errors=(NotFound, Unavailable)),
    Row("GET", "/api/sessions/{session_id}/messages", sessions.list_messages,
        "List messages, the newest page first, each page in order.", query=ListMessages, response=MessagePage,
        errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/chat/{session_id}", sessions.chat_over_http,
        "Start a run and stream its log, for older clients.", body=ChatMessage, response="text/event-stream",
        errors=(BadInput, IdempotencyConflict, TooLarge, TooMany, Unavailable)),
    Row("POST", "/api/rpc", rpc.rpc, "Call a method of the gateway, such as canvas.get. Returns its payload.",
        body=RpcCall, response="application/json", errors=_RPC_ERRORS),
    Row("POST", "/api/canvases/{canvas_id}/snapshots", canvases.add_snapshot,
        "Store a snapshot of a canvas and notify its viewers.", takes_file=True, status=201,
        response=SnapshotView, errors=(BadInput, NotFound, TooLarge, Unavailable)),
    Row("GET", "/api/documents/{canvas_id}", documents.get_document, "Get a document.",
        response=DocumentView, errors=_DOCUMENT_ERRORS),
    Row("PUT", "/api/documents/{canvas_id}", documents.put_document,
        "Save the text of a document as a draft. It wins over an agent that edits.", body=PutDocument,
        response=SavedDocument, errors=(BadInput, NotFound, TextConflict, TooLarge, Unavailable)),
    Row("GET", "/api/documents/{canvas_id}/history", documents.list_versions,
        "List the versions of a document, newest first.", query=DocumentVersionsQuery, response=VersionPage,
        errors=(BadInput, NotFound, Unavailable)),
    Row("GET", "/api/documents/{canvas_id}/diff", documents.compare_revisions,
        "Compare two revisions of a document.", query=CompareRevisions, response=DifferenceView,
        errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/documents/{canvas_id}/restore", documents.restore_document,
        "Make the text of an earlier revision the current draft.", body=RestoreDocument,
        response=DocumentView, errors=(BadInput, NotFound, Unavailable)),
    Row("POST", "/api/documents/{canvas_id}/promote", documents.promote_document,
        "Make the current text a version.", body=NoParams, response=PromotedView, errors=_DOCUMENT_ERRORS),
    Row("POST", "/api/documents/{canvas_id}/take-control", documents.take_control,
        "End the lease of the agent that edits the document.", body=NoParams, response=DocumentView,
        errors=_DOCUMENT_ERRORS),
    Row("GET", "/api/tools", runs.list_tools, "List the tools that agents can call, by name.",
        query=ListTools, response=ToolList),
    Row("GET", "/api/settings", settings.get_settings,
        "Get your settings, and where each value comes from. A key is masked.", response=SettingsView,
        errors=(Forbidden, Unavailable)),
    Row("PUT", "/api/settings", settings.change_settings,
        "Change the named settings; null clears one. A running run uses them from its next step on.",
        body=ChangeSettings, response=SettingsView,
        errors=(BadInput, Forbidden, SecretsUnavailable, Unavailable)),
    Row("POST", "/api/settings/check", settings.check_model,
        "Make one small request to your model, and explain what is wrong if it fails.", body=NoParams,
        response=ModelCheckView, errors=(Forbidden, Unavailable)),
    Row("GET", "/api/secrets", secrets.list_secrets,
        "List the names of your secrets, in their order. No answer has a value.", query=ListSecrets,
        response=SecretPage, errors=(BadInput, Forbidden, Unavailable)),
    Row("PUT", "/api/secrets/{name}", secrets.set_secret,
        "Store a secret, or replace it. Only a person can.", body=SetSecret, status=204,
        errors=(BadInput, Forbidden, TooLarge, SecretsUnavailable, Unavailable)),
    Row("DELETE", "/api/secrets/{name}", secrets.delete_secret, "Delete a secret.", status=204,
        errors=(NotFound, Forbidden, Unavailable)),
    Row("GET", "/api/audit", audit.list_audit, "List audit records, newest first.", _ADMIN, query=ListAudit,
        response=AuditPage, errors=(BadInput, Forbidden, Unavailable)),
    Row("GET", "/openapi.json", pages.openapi_json, "Get this description.", response="application/json"),
)  # fmt: skip

# Served by every process, also by a worker.
OPS: tuple[Row, ...] = (
    Row("GET", "/healthz", ops.healthz, "Check that the process is alive.", _OPEN),
    Row("GET", "/readyz", ops.readyz, "Check that the process can store data now.", _OPEN,
        errors=(Unavailable,)),
    Row("GET", "/metrics", ops.metrics, "Get Prometheus metrics.", _ADMIN),
)  # fmt: skip

# For people: not in the OpenAPI description.
PAGES: tuple[Row, ...] = (
    Row("GET", "/api/docs", pages.api_page, "The API page.", response="text/html"),
    Row("GET", "/", pages.home, "The home page, or the sign-in page.", _OPEN, response="text/html"),
    Row("POST", "/sign-in", pages.sign_in, "Sign in with a token. Sets a cookie.", _OPEN,
        response="text/html"),
    Row("POST", "/sign-out", pages.sign_out, "Sign out: revoke the cookie and close its connections.", _OPEN,
        response="text/html"),
    Row("GET", "/canvas/{agent_id}/{canvas_id}", canvas_page.canvas_page,
        "The page of a canvas, or the sign-in page.", _OPEN, response="text/html"),
    Row("GET", "/canvas-view/{token}/{file:path}", canvas_page.view_file,
        "A file of a canvas's page, by the token of its view.", _OPEN, response="*/*"),
    Row("GET", "/ui/{file}", pages.ui_file, "A script, style or picture of our own pages.", _OPEN,
        response="text/css"),
)  # fmt: skip

ROUTES: tuple[Row, ...] = (*API, *OPS, *PAGES)

SOCKETS: tuple[SocketRow, ...] = (
    # The chat of a session: the server sends events, the client messages and cancels.
    SocketRow("/ws/chat/{thread_id}", chat.chat),
)
