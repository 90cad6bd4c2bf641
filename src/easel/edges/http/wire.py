"""The shapes of HTTP requests and responses of runs and tools, and of errors."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.run.conversation import Usage
from easel.core.run.run import Run
from easel.core.stream import payloads
from easel.core.stream.log import LAST_CURSOR
from easel.core.stream.message_text import Marker, cut_text, with_markers_of
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import tool_location
from easel.edges import views
from easel.edges.decoding import Params
from easel.edges.errors import ErrorDetail, error_detail
from easel.edges.paging import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS
from easel.edges.results import HintsOfTool
from easel.errors import HostError

MAX_LISTED_INPUT_BYTES = 1_024  # of a run's input in a list, as JSON


PageLimit = Annotated[int, Meta(ge=1, le=200)]
NumberCursor = Annotated[
    Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None, Meta(description="`next` of the previous page.")
]
PageCursor = Annotated[str | None, Meta(description="`next` of the previous page.")]


class StartRun(Params):
    session_id: Annotated[
        str,
        Meta(
            description="A conversation. An unknown session is created by its first run.", examples=["main"]
        ),
    ]
    message: Annotated[str, Meta(description="The task of the agent.", examples=["noop"])]
    idempotency_key: Annotated[
        str | None, Meta(description="Requests with the same key return the same run.")
    ] = None


class RunStarted(Struct):
    run_id: str
    status: str


class RunView(Struct, omit_defaults=True):
    run_id: str
    session_id: str
    status: Annotated[str, Meta(description="queued, running, completed, failed or cancelled")]
    input_text: Annotated[
        str,
        Meta(description="The message, with `[[artifact:ID]]` in place of each run of Base64 over 2 KB."),
    ]
    created_at: datetime
    attempt: int
    max_attempts: int
    last_seq: int
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    error_message: str | None = None
    started_by: Annotated[
        str | UnsetType,
        Meta(description="The person who started it, or answers for the program that did. Absent: Easel."),
    ] = UNSET
    attachments: Annotated[
        list[payloads.Marker] | UnsetType, Meta(description="The markers of the references in `input_text`.")
    ] = UNSET
    truncated: Annotated[
        bool, Meta(description="`input_text` is its beginning; GET /api/runs/{run_id} has the complete text.")
    ] = False
    usage: Annotated[
        payloads.TokenUsage | None,
        Meta(description="Tokens of an ended run; only in GET /api/runs/{run_id}."),
    ] = None


class ListRuns(Params):
    session_id: str | None = None
    statuses: Annotated[
        str, Meta(description="Comma separated: queued, running, completed, failed, cancelled.")
    ] = ""
    limit: PageLimit = 50
    before: NumberCursor = None


class RunPage(Struct, omit_defaults=True):
    runs: list[RunView]
    next: int | None = None


class StreamQuery(Params):
    last_event_id: Annotated[
        str | None, Meta(description="Resume after this event; the Last-Event-ID header takes precedence.")
    ] = None
    debug: Annotated[
        str, Meta(description="1 includes internal events, for persons who are admin of the account.")
    ] = ""


class ToolView(Struct):
    name: str
    description: str
    schema: Annotated[dict[str, Any], Meta(description="The JSON Schema of its arguments.")]
    annotations: HintsOfTool
    runs_on: str


class ListTools(Params):
    after: PageCursor = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class ToolList(Struct, omit_defaults=True):
    tools: list[ToolView]
    next: str | None = None


class ErrorAnswer(Struct):
    error: ErrorDetail


def listed_run_view(run: Run) -> RunView:
    """Return a run for a list, with the beginning of its input."""
    beginning = cut_text(run.input_text, MAX_LISTED_INPUT_BYTES)
    view = run_view(run)
    view.input_text = beginning
    view.attachments = marker_views(with_markers_of(beginning, run.input_attachments))
    view.truncated = len(beginning) < len(run.input_text)
    return view


def run_view(run: Run, usage: Usage | None = None) -> RunView:
    return RunView(
        run_id=run.run_id,
        session_id=run.session_id,
        status=run.status.value,
        input_text=run.input_text,
        created_at=run.created_at,
        attempt=min(run.attempt, run.max_attempts),
        max_attempts=run.max_attempts,
        last_seq=run.last_seq,
        started_at=run.started_at,
        finished_at=run.finished_at,
        cancel_requested_at=run.cancel_requested_at,
        error_message=run.error_message,
        attachments=marker_views(run.input_attachments),
        usage=payloads.TokenUsage(**usage.to_json()) if usage else None,
        started_by=run.started_by or UNSET,
    )


def marker_views(markers: Sequence[Marker]) -> list[payloads.Marker] | UnsetType:
    return [payloads.Marker(**marker) for marker in markers] or UNSET


def tool_view(tool: ToolDefinition) -> ToolView:
    listed = views.tool_view(tool)
    return ToolView(
        tool.name, tool.description, dict(tool.schema), listed.annotations, tool_location(tool.name)
    )


def error_body(problem: HostError) -> bytes:
    return msgspec.json.encode(ErrorAnswer(error_detail(problem)), enc_hook=str)
