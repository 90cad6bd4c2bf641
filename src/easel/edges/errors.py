"""Shared by all edges: the JSON of an error, and the check for duplicate keys in incoming JSON."""

from typing import Annotated, Any, cast

import structlog
from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.principal import Principal
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.errors import HostError, InternalError
from easel.host.audit.audit import Audit
from easel.ids import new_reference

# Name of our ASGI extension, a dict of functions of the connection: `abort`; for a response `limit_stalls`;
# for a WebSocket `watch` and `limit_frames`.
CONNECTION = "easel.connection"

log = structlog.get_logger("edges")


class ErrorDetail(Struct):
    code: Annotated[int, Meta(description="Number of the error in the gateway protocol.")]
    name: Annotated[str, Meta(description="Name of the error; see the list of errors.")]
    message: str
    details: dict[str, Any] | UnsetType = UNSET


def error_detail(problem: HostError) -> ErrorDetail:
    details = {key: value for key, value in problem.details.items() if key not in ("problem", "reason")}
    return ErrorDetail(problem.gateway, problem.code, problem.message, details or UNSET)


def to_host_error(
    problem: Exception, audit: Audit, principal: Principal, event: str, **details: str
) -> HostError:
    """Return the error for the client. An unexpected one is logged and audited, and sent as a reference."""
    if isinstance(problem, HostError):
        return problem
    reference = new_reference()
    log.error(event, reference=reference, exc_info=problem, **details)
    audit.record_exception(principal, event, problem, reference=reference, details=details)
    return InternalError(reference=reference)


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
