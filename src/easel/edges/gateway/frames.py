"""The frames of the gateway's WebSocket, protocol 1: `req` in, `res` and `evt` out, JSON text each."""

from dataclasses import dataclass
from typing import Any, cast

import msgspec

from easel.core.stream.log import LoggedEvent
from easel.core.validation import is_too_deep
from easel.edges.errors import all_keys_once, error_detail
from easel.errors import BadInput, HostError

MAX_ID_LENGTH = 200
MAX_DEPTH = (
    500  # levels: what a verb takes is shallower, and says so; this is so that no reader's stack decides
)


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    method: str
    params: dict[str, Any] | None


class BadFrame(Exception):
    """A frame that is no request; `id` is what its sender called it, where that can be told."""

    def __init__(self, problem: BadInput, id_: str | None = None) -> None:
        super().__init__(problem.message)
        self.problem, self.id = problem, id_


def read(text: str | None) -> Request:
    if text is None:
        raise BadFrame(BadInput(problem="Frames of the gateway are JSON text."))
    try:
        decoded: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadFrame(BadInput(problem=f"The frame is not valid JSON: {problem}.")) from None
    if not isinstance(decoded, dict):
        raise BadFrame(
            BadInput(problem='A frame is an object: {"type":"req","id":"1","method":"…","params":{…}}.')
        )
    frame = cast("dict[str, Any]", decoded)
    named = frame.get("id")
    id_ = named if isinstance(named, str) and 0 < len(named) <= MAX_ID_LENGTH else None
    try:
        if is_too_deep(frame, MAX_DEPTH):
            raise BadInput(problem=f"The frame is nested deeper than {MAX_DEPTH} levels.")
        all_keys_once(text, frame)
        return _request(frame, id_)
    except BadInput as problem:
        raise BadFrame(problem, id_) from None


def _request(frame: dict[str, Any], id_: str | None) -> Request:
    kind, method, params = frame.get("type"), frame.get("method"), frame.get("params")
    if kind != "req":
        told = kind[:50] if isinstance(kind, str) else "none"
        raise BadInput(problem=f"A client sends frames of type req; this one is {told!r}.")
    if id_ is None:
        raise BadInput(
            problem=f"id: a request has one, text of 1 to {MAX_ID_LENGTH} characters; its answer has the same."
        )
    if not isinstance(method, str):
        raise BadInput(problem="method: a request names one.")
    if params is not None and not isinstance(params, dict):
        raise BadInput(problem="params: is an object.")
    return Request(id_, method, cast("dict[str, Any] | None", params))


def answer(id_: str, payload: Any) -> str:
    return msgspec.json.encode({"type": "res", "id": id_, "ok": True, "payload": payload}).decode()


def refusal(id_: str | None, problem: HostError) -> str:
    error: dict[str, Any] = msgspec.to_builtins(error_detail(problem), enc_hook=str)
    if problem.retry_after is not None:
        error["retryable"] = True
    return msgspec.json.encode({"type": "res", "id": id_, "ok": False, "error": error}).decode()


def event(logged: LoggedEvent) -> str:
    """`seq` is the log's own: a client that comes back says which one it saw last."""
    return f'{{"type":"evt","event":"{logged.type}","payload":{logged.data},"seq":{logged.seq}}}'


def notice(name: str, payload: dict[str, Any]) -> str:
    """Something of this connection alone: it is in no log and has no number."""
    return msgspec.json.encode({"type": "evt", "event": name, "payload": payload}).decode()
