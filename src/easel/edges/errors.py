"""Shared by all edges: the JSON of an error, and the check for duplicate keys in incoming JSON."""

from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.stream.json_text import refuse_duplicate_keys
from easel.errors import HostError

# Name of our ASGI extension, a dict of functions of the connection: `abort`, `unsent` (the number of unsent
# bytes) and, for a WebSocket, `watch` and `limit_frames`.
CONNECTION = "easel.connection"


class ErrorDetail(Struct):
    code: Annotated[int, Meta(description="Number of the error in the gateway protocol.")]
    name: Annotated[str, Meta(description="Name of the error; see the list of errors.")]
    message: str
    details: dict[str, Any] | UnsetType = UNSET


def error_detail(problem: HostError) -> ErrorDetail:
    details = {key: value for key, value in problem.details.items() if key not in ("problem", "reason")}
    return ErrorDetail(problem.gateway, problem.code, problem.message, details or UNSET)


def refuse_duplicate_keys_of(text: str, decoded: Any) -> None:
    """Raise `BadInput` if an object of `text` has the same key twice; `decoded` is the decoded text.

    Faster than `refuse_duplicate_keys`: with as many colons as decoded keys, no key was overwritten.
    """
    if text.count(":") != _count_keys(decoded):
        refuse_duplicate_keys(text)


def _count_keys(value: Any) -> int:
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            count += len(fields)
            pending += fields.values()
        elif isinstance(item, list):
            pending += cast("list[Any]", item)
    return count
