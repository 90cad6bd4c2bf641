"""The frames of the gateway's WebSocket, protocol 1: `req` in, `res` and `evt` out, JSON text each."""
# ruff: noqa: N815 - the words of the protocol

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.stream.log import LoggedEvent
from easel.core.unknown_members import UnknownMember, review_unknown_members
from easel.core.validation import is_too_deep
from easel.edges.errors import ErrorDetail, error_detail, refuse_duplicate_keys_of
from easel.errors import BadInput, HostError

MAX_ID_LENGTH = 200
MAX_DEPTH = 500  # levels of nesting; a method may have a lower limit
_MEMBERS = frozenset({"type", "id", "method", "params"})


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    method: str
    params: dict[str, Any] | None
    warnings: list[str] = field(default_factory=list[str])  # about unknown members of the frame. RS-67


class BadFrame(Exception):
    """A frame that is not a valid request. `id` is its id, if it has one."""

    def __init__(self, problem: BadInput, id_: str | None = None) -> None:
        super().__init__(problem.message)
        self.problem, self.id = problem, id_


def parse(text: str | None) -> Request:
    """Return the request of a frame. Raises `BadFrame`."""
    if text is None:
        raise BadFrame(BadInput(problem="A frame must be JSON text."))
    try:
        decoded: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadFrame(BadInput(problem=f"The frame is not valid JSON: {problem}.")) from None
    if not isinstance(decoded, dict):
        raise BadFrame(
            BadInput(problem='A frame must be an object: {"type":"req","id":"1","method":"…","params":{…}}.')
        )
    frame = cast("dict[str, Any]", decoded)
    value = frame.get("id")
    id_ = value if isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH else None
    try:
        if is_too_deep(frame, MAX_DEPTH):
            raise BadInput(problem=f"The frame is nested deeper than {MAX_DEPTH} levels.")
        refuse_duplicate_keys_of(text, frame)
        return _request(frame, id_)
    except BadInput as problem:
        raise BadFrame(problem, id_) from None


def _request(frame: dict[str, Any], id_: str | None) -> Request:
    kind, method, params = frame.get("type"), frame.get("method"), frame.get("params")
    if kind != "req":
        found = kind[:50] if isinstance(kind, str) else None
        raise BadInput(problem=f"type must be 'req', not {found!r}.")
    if id_ is None:
        raise BadInput(problem=f"id must be text of 1 to {MAX_ID_LENGTH} characters.")
    if not isinstance(method, str):
        raise BadInput(problem="method must be text.")
    if params is not None and not isinstance(params, dict):
        raise BadInput(problem="params must be an object.")
    unknown = [UnknownMember(name, _MEMBERS) for name in frame if name not in _MEMBERS]
    return Request(id_, method, cast("dict[str, Any] | None", params), review_unknown_members(unknown))


# --- sent frames --------------------------------------------------------------------------------------------


class ResponseFrame(Struct, tag_field="type", tag="res"):
    id: str
    ok: bool
    payload: Any


class RefusedRequest(ErrorDetail):
    retryable: Annotated[bool | UnsetType, Meta(description="The same request may succeed later.")] = UNSET


class RefusalFrame(Struct, tag_field="type", tag="res"):
    id: Annotated[str | None, Meta(description="Null if the request has no valid id.")]
    ok: bool
    error: RefusedRequest


class EventFrame(Struct, tag_field="type", tag="evt"):
    """An event of a canvas's log; a client resumes after its `seq`."""

    event: str
    payload: dict[str, Any]
    seq: int


class NoticeFrame(Struct, tag_field="type", tag="evt"):
    """An event for this connection only: it is not logged and has no `seq`."""

    event: str
    payload: Any


def response(id_: str, payload: Any) -> str:
    return msgspec.json.encode(ResponseFrame(id_, ok=True, payload=payload)).decode()


def error_response(id_: str | None, problem: HostError) -> str:
    found = error_detail(problem)
    retryable = UNSET if problem.retry_after is None else True
    error = RefusedRequest(found.code, found.name, found.message, found.details, retryable)
    return msgspec.json.encode(RefusalFrame(id_, ok=False, error=error), enc_hook=str).decode()


def event(logged: LoggedEvent) -> str:
    """Return the `EventFrame` of an event, without decoding its data."""
    return f'{{"type":"evt","event":"{logged.type}","payload":{logged.data},"seq":{logged.seq}}}'


def notice(name: str, payload: Struct) -> str:
    return msgspec.json.encode(NoticeFrame(name, payload)).decode()


# --- notices ------------------------------------------------------------------------------------------------

ENDED = "canvas.unsubscribed"  # at the end of a subscription
INVOKE, CANCEL = "tool.invoke", "tool.cancel"  # sent to a node


class EndedSubscription(Struct):
    canvasId: str
    reason: Annotated[
        str, Meta(description="DELETED, RESUME, or the name of an error; resume after the last `seq`.")
    ]


class NodeCall(Struct):
    callId: str
    tool: str
    args: Mapping[str, Any]
    env: Annotated[
        Mapping[str, str] | UnsetType, Meta(description="Secrets, as environment variables of the tool.")
    ] = UNSET


class CancelledNodeCall(Struct):
    callId: str


NOTICES: Mapping[str, type[Struct]] = {
    ENDED: EndedSubscription,
    INVOKE: NodeCall,
    CANCEL: CancelledNodeCall,
}
