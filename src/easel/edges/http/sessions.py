"""Sessions and their messages over HTTP."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session, to_session_key
from easel.core.stream import payloads
from easel.core.stream.filter import WHOLE_RUN
from easel.edges.decoding import Params
from easel.edges.http.calls import Call, idempotency_key, json_response
from easel.edges.http.sse import EventStream
from easel.edges.http.wire import NumberCursor, PageCursor, PageLimit, RunStarted, marker_views
from easel.edges.paging import read_page
from easel.errors import BadInput
from easel.ids import SessionId, is_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SessionView(Struct, omit_defaults=True):
    session_id: str
    key: Annotated[str, Meta(description="agent:{agentId}:{name}")]
    title: str | None
    created_at: datetime
    last_message_at: datetime
    last_seq: Annotated[int, Meta(description="Sequence number of the newest event of its thread.")]
    active_run_id: str | None = None
    created_by: Annotated[
        str | UnsetType,
        Meta(description="The person who made it, who may delete it as an admin may. Absent: Easel itself."),
    ] = UNSET


class CreateSession(Params):
    session_id: Annotated[
        str | None, Meta(description="A name for the session; without one it is generated.")
    ] = None
    title: str | None = None


class RenameSession(Params):
    title: str


class ListSessions(Params):
    search: Annotated[str, Meta(description="Text to search for in titles and ids.")] = ""
    limit: PageLimit = 50
    before: PageCursor = None


class SessionPage(Struct, omit_defaults=True):
    sessions: list[SessionView]
    next: str | None = None


class ListMessages(Params):
    limit: PageLimit = 50
    before: NumberCursor = None


class MessageMetadata(Struct):
    visibility: str


class MessageView(Struct, omit_defaults=True):
    message_id: str
    run_id: str
    role: str
    text: Annotated[
        str,
        Meta(description="The text, with `[[artifact:ID]]` in place of each run of Base64 over 2 KB."),
    ]
    seq: Annotated[int, Meta(description="Its sequence number in the thread.")]
    created_at: datetime
    metadata: MessageMetadata
    status: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    attachments: Annotated[
        list[payloads.Marker] | UnsetType, Meta(description="The markers of the references in the text.")
    ] = UNSET


class MessagePage(Struct, omit_defaults=True):
    messages: list[MessageView]
    next: int | None = None


class ChatMessage(Params):
    message: Annotated[str, Meta(description="The task of the agent.")]
    idempotency_key: str | None = None


async def create_session(call: Call) -> SessionView:
    params: CreateSession = call.params
    return session_view(await call.host.sessions.create(call.principal, params.session_id, params.title))


async def list_sessions(call: Call) -> SessionPage:
    params: ListSessions = call.params

    async def read(before: str | None, count: int) -> Sequence[Session]:
        return await call.host.sessions.list_sessions(
            call.principal, params.search, _parse_position(before), count
        )

    limit = params.limit
    return SessionPage(
        *await read_page(read, session_view, _position, start=params.before, limit=limit, step=limit)
    )


def _position(session: Session) -> str:
    return f"{(session.last_message_at - _EPOCH) // _MICROSECOND}.{session.session_id}"


def _parse_position(text: str | None) -> tuple[datetime, SessionId] | None:
    if text is None:
        return None
    at, _, name = text.partition(".")
    if not (at.isascii() and at.isdigit() and len(at) <= 17 and is_name(name)):
        raise BadInput(problem="before must be `next` of the previous page.")
    return _EPOCH + int(at) * _MICROSECOND, SessionId(name)


async def get_session(call: Call) -> SessionView:
    return session_view(await call.host.sessions.get(call.principal, call.path["session_id"]))


async def rename_session(call: Call) -> SessionView:
    title = call.params.title
    return session_view(await call.host.sessions.rename(call.principal, call.path["session_id"], title))


async def delete_session(call: Call) -> None:
    await call.host.sessions.delete(call.principal, call.path["session_id"])


async def list_messages(call: Call) -> MessagePage:
    params: ListMessages = call.params

    async def read(before: int | None, count: int) -> Sequence[StoredMessage]:
        page = await call.host.sessions.list_messages(call.principal, call.path["session_id"], before, count)
        return page[::-1]  # a page is filled from the newest message on

    messages, more = await read_page(
        read, message_view, lambda message: message.thread_seq, start=params.before, limit=params.limit
    )
    return MessagePage(messages[::-1], more)


async def chat_over_http(call: Call) -> Response:
    """Start a run and stream its log, for older clients. A disconnect does not stop the run. RX-47"""
    params: ChatMessage = call.params
    key = idempotency_key(call.request, params.idempotency_key)
    run = await call.host.queue.start(call.principal, call.path["session_id"], params.message, key)
    headers = {"x-run-id": run.run_id}
    if "application/json" in call.request.headers.get("accept", ""):
        return json_response(RunStarted(run.run_id, "queued"), 202, headers)
    subscription = await call.host.tails.open(call.principal, run.run_id, None, WHOLE_RUN)
    return Response(status_code=204) if subscription is None else EventStream(subscription, headers)


def session_view(session: Session) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        key=to_session_key(session.session_id),
        title=session.title,
        created_at=session.created_at,
        last_message_at=session.last_message_at,
        last_seq=session.last_thread_seq,
        active_run_id=session.active_run_id,
        created_by=session.created_by or UNSET,
    )


def message_view(message: StoredMessage) -> MessageView:
    return MessageView(
        message_id=message.message_id,
        run_id=message.run_id,
        role=message.role,
        text=message.text,
        seq=message.thread_seq,
        created_at=message.created_at,
        metadata=MessageMetadata("public"),  # CC-14: messages contain public text only
        status=message.status or UNSET,
        error=message.error_message or UNSET,
        attachments=marker_views(message.attachments),
    )
