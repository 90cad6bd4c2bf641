"""Sessions and their messages over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from easel.core.session.message import StoredMessage
from easel.core.session.session import Session, key_of
from easel.core.stream.filter import WHOLE_RUN
from easel.core.stream.log import LAST_CURSOR
from easel.edges.http.calls import Call, json_answer
from easel.edges.http.sse import EventStream
from easel.edges.http.wire import RunStarted
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
    last_seq: Annotated[int, Meta(description="The newest event of its thread.")]
    active_run_id: str | None = None


class CreateSession(Struct):
    session_id: Annotated[str | None, Meta(description="A name of your own; without one it is made.")] = None
    title: str | None = None


class RenameSession(Struct):
    title: str


class ListSessions(Struct):
    search: Annotated[str, Meta(description="Looked for in titles and ids.")] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str | None, Meta(description="`next` of the page before this one.")] = None


class SessionPage(Struct, omit_defaults=True):
    sessions: list[SessionView]
    next: str | None = None


class ListMessages(Struct):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[
        Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None,
        Meta(description="`next` of the page before this one."),
    ] = None


class MessageView(Struct, omit_defaults=True):
    message_id: str
    run_id: str
    role: str
    text: Annotated[
        Any,
        Meta(
            description="The whole text; or, where it holds Base64 over 2 KB, the marker whose `uri` gives it."
        ),
    ]
    seq: Annotated[int, Meta(description="Its place in the thread.")]
    created_at: datetime
    metadata: dict[str, str]
    status: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class MessagePage(Struct, omit_defaults=True):
    messages: list[MessageView]
    next: int | None = None


class ChatMessage(Struct):
    message: Annotated[str, Meta(description="What the agent is to do.")]
    idempotency_key: str | None = None


async def create_session(call: Call) -> Response:
    asked: CreateSession = call.asked
    return json_answer(
        session_view(await call.host.sessions.create(call.principal, asked.session_id, asked.title)), 201
    )


async def list_sessions(call: Call) -> Response:
    asked: ListSessions = call.asked
    found = await call.host.sessions.list_sessions(
        call.principal, asked.search, _place(asked.before), asked.limit
    )
    more = (
        f"{(found[-1].last_message_at - _EPOCH) // _MICROSECOND}.{found[-1].session_id}"
        if len(found) == asked.limit
        else None
    )
    return json_answer(SessionPage([session_view(session) for session in found], more))


def _place(text: str | None) -> tuple[datetime, SessionId] | None:
    if text is None:
        return None
    at, _, name = text.partition(".")
    if not (at.isascii() and at.isdigit() and len(at) <= 17 and is_name(name)):
        raise BadInput(problem="before is `next` of the page before this one.")
    return _EPOCH + int(at) * _MICROSECOND, SessionId(name)


async def get_session(call: Call) -> Response:
    return json_answer(session_view(await call.host.sessions.get(call.principal, call.path["session_id"])))


async def rename_session(call: Call) -> Response:
    asked: RenameSession = call.asked
    return json_answer(
        session_view(await call.host.sessions.rename(call.principal, call.path["session_id"], asked.title))
    )


async def delete_session(call: Call) -> Response:
    await call.host.sessions.delete(call.principal, call.path["session_id"])
    return Response(status_code=204)


async def list_messages(call: Call) -> Response:
    asked: ListMessages = call.asked
    found = await call.host.sessions.list_messages(
        call.principal, call.path["session_id"], asked.before, asked.limit
    )
    more = found[0].thread_seq if len(found) == asked.limit else None
    return json_answer(MessagePage([message_view(message) for message in found], more))


async def chat_over_http(call: Call) -> Response:
    """The route of older clients: it starts a run as any other and shows its log. Who leaves stops nothing. RX-47"""
    asked: ChatMessage = call.asked
    run = await call.host.queue.start(
        call.principal, call.path["session_id"], asked.message, asked.idempotency_key
    )
    headers = {"x-run-id": run.run_id}
    if "application/json" in call.request.headers.get("accept", ""):
        return json_answer(RunStarted(run.run_id, "queued"), 202, headers)
    subscription = await call.host.tails.open(call.principal, run.run_id, None, WHOLE_RUN)
    return Response(status_code=204) if subscription is None else EventStream(subscription, headers)


def session_view(session: Session) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        key=key_of(session.session_id),
        title=session.title,
        created_at=session.created_at,
        last_message_at=session.last_message_at,
        last_seq=session.last_thread_seq,
        active_run_id=session.active_run_id,
    )


def message_view(message: StoredMessage) -> MessageView:
    return MessageView(
        message_id=message.message_id,
        run_id=message.run_id,
        role=message.role,
        text=message.content,
        seq=message.thread_seq,
        created_at=message.created_at,
        metadata={"visibility": "public"},  # CC-14: what is not public is in no message
        status=message.status or UNSET,
        error=message.error_message or UNSET,
    )
