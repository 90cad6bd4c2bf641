"""The chat of a session over a WebSocket. CC-03, RS-03

The server sends the events of the thread, the client sends messages and cancels runs. Incoming frames are
handled one after the other, so messages keep their order. A viewer only reads. A refused frame is answered
with an `error` frame, one with unknown members with a `warnings` frame, and the connection stays open.
"""

from contextlib import closing

import msgspec

from easel.core.access import InAccount, check_access
from easel.core.principal import PrincipalKind, Role
from easel.core.stream.filter import CHAT
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.core.stream.log import LoggedEvent
from easel.edges.decoding import Decoded, decode_json, warn_in_error
from easel.edges.delivery import deliver
from easel.edges.errors import error_detail, to_host_error
from easel.edges.http.calls import decode_query
from easel.edges.http.chat_frames import (
    ChatError,
    ChatNotice,
    ChatPong,
    ChatRequest,
    ChatWarnings,
    NewChatMessage,
    Ping,
)
from easel.edges.http.sockets import SocketCall
from easel.edges.http.sse import envelope_text
from easel.edges.http.streams import subscribe
from easel.edges.http.wire import StreamQuery
from easel.edges.socket import RESTARTING, Socket
from easel.errors import BadInput, Forbidden
from easel.host.streams import Subscription

TALK = InAccount(Role.MEMBER, frozenset({PrincipalKind.USER, PrincipalKind.SERVICE}))


class ChatQuery(StreamQuery):
    token: str | None = None  # read by the sign-in


async def chat(call: SocketCall) -> None:
    query, warnings = decode_query(call.socket, ChatQuery)
    log = await subscribe(call.host.threads, call.principal, call.path["thread_id"], CHAT, query)
    if log is None:  # does not happen: the log of a thread has no end
        return
    with closing(log):
        async with Socket(call.socket, call.host.revocation) as socket:
            socket.admit(call.principal)
            await _warn(socket, warnings)
            socket.start(_send_events(socket, log))
            await socket.receive(lambda text: _answer(call, socket, text))


async def _send_events(socket: Socket, log: Subscription) -> None:
    async def send_page(events: list[LoggedEvent]) -> None:
        for event in events:
            await socket.send(envelope_text(event))

    await deliver(log, send_page)
    await socket.close(RESTARTING)


async def _answer(call: SocketCall, socket: Socket, text: str | None) -> None:
    warnings: list[str] = []  # about unknown members
    try:
        frame, warnings = _decode(text)
        await _handle(call, socket, frame)
        await _warn(socket, warnings)
    except Exception as problem:  # noqa: BLE001 - logged by `to_host_error`
        error = to_host_error(problem, call.host.audit, call.principal, "chat.error")
        warn_in_error(error, warnings)
        await _send(socket, ChatError(error_detail(error)))


def _decode(text: str | None) -> Decoded:
    if text is None:
        raise BadInput(problem="A frame of the chat must be JSON text.")
    try:
        decoded = decode_json(text, ChatRequest)
        refuse_duplicate_keys(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(
            problem=f"The frame is invalid ({problem}); "
            'send {"type":"message","text":"…"}, {"type":"cancel"} or {"type":"ping"}.'
        ) from None
    return decoded


async def _handle(call: SocketCall, socket: Socket, frame: ChatRequest) -> None:
    thread_id = call.path["thread_id"]
    if not isinstance(frame, Ping):
        _check_may_talk(call)
    if isinstance(frame, NewChatMessage):
        await call.host.queue.start(call.principal, thread_id, frame.text, frame.idempotency_key)
    elif isinstance(frame, Ping):
        await _send(socket, ChatPong())
    else:
        await call.host.sessions.stop(call.principal, thread_id)


def _check_may_talk(call: SocketCall) -> None:
    """Raise `Forbidden` for a viewer, who may only read the chat. RS-76"""
    try:
        check_access(TALK, call.principal)
    except Forbidden as problem:
        details = {"thread": call.path["thread_id"][:200], "problem": problem.message}
        call.host.audit.record_throttled(call.principal, "guardrail.refused", details=details)
        raise


async def _warn(socket: Socket, warnings: list[str]) -> None:
    if warnings:
        await _send(socket, ChatWarnings(warnings))


async def _send(socket: Socket, frame: ChatNotice) -> None:
    await socket.send(msgspec.json.encode(frame, enc_hook=str).decode())
