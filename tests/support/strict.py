"""Strict decoding of what Easel sends: a value must be exactly what its struct describes.

A member that the struct does not have, one that is missing, and one of another type break the contract.
"""

from __future__ import annotations

from typing import Any

import msgspec

from easel.core.stream.envelope import EVENT_TYPES
from easel.edges.errors import ErrorDetail
from easel.edges.gateway import frames
from easel.edges.methods import CONNECTION_METHODS, METHODS
from easel.errors import HostError, by_code


class ContractBroken(AssertionError):
    """The server sent something that the contract forbids."""


def check(value: Any, shape: Any) -> None:
    """Raise `ContractBroken` unless the decoded JSON `value` is a complete and exact value of `shape`.

    Encoding the decoded struct must return the same JSON: a member that the struct does not have is lost on
    the way, however deep it is.
    """
    try:
        again = msgspec.json.decode(
            msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(value), type=shape))
        )
    except msgspec.ValidationError as problem:
        raise ContractBroken(f"{problem}: {str(value)[:500]}") from None
    if again != value:
        raise ContractBroken(f"not described by {shape}: {str(value)[:500]} is decoded as {str(again)[:500]}")


def check_result(method: str, payload: Any) -> None:
    """Check the payload of a method's answer."""
    row = METHODS.get(method) or CONNECTION_METHODS[method]
    check(payload, row.result)


def check_event(event_type: str, data: Any) -> None:
    """Check the payload of a logged event."""
    if event_type not in EVENT_TYPES:
        raise ContractBroken(f"{event_type} is no event type")
    check(data, EVENT_TYPES[event_type].payload)


def check_error(error: Any, shape: Any = ErrorDetail) -> None:
    """Check an error: its members, and that its code and its name are of one error of the closed set."""
    check(error, shape)
    kind = by_code(error["name"], HostError)
    if (kind.gateway, kind.code) != (error["code"], error["name"]):
        raise ContractBroken(f"not of the closed set: {error}")


def check_frame(frame: Any) -> None:
    """Check a frame of the gateway, but not the payload of an answer."""
    match frame:
        case {"type": "res", "ok": True}:
            check(frame, frames.ResponseFrame)
        case {"type": "res"}:
            check(frame, frames.RefusalFrame)
            check_error(frame["error"], frames.RefusedRequest)
        case {"type": "evt", "seq": _}:
            check(frame, frames.EventFrame)
            check_event(frame["event"], frame["payload"])
        case _:
            check(frame, frames.NoticeFrame)
            check(frame["payload"], frames.NOTICES[frame["event"]])
