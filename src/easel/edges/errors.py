"""What all edges have in common: how a failure is told, and what of incoming JSON is refused."""

import json
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.errors import BadInput, HostError

CONNECTION = "easel.connection"  # in a request's `extensions`: how much is buffered for its reader, and a way to drop it with that


class ErrorDetail(Struct):
    code: Annotated[int, Meta(description="The number of the gateway's list.")]
    name: Annotated[str, Meta(description="The word of Easel's closed set of errors.")]
    message: str
    details: dict[str, Any] | UnsetType = UNSET


def error_detail(problem: HostError) -> ErrorDetail:
    details = {key: value for key, value in problem.details.items() if key not in ("problem", "reason")}
    return ErrorDetail(problem.gateway, problem.code, problem.message, details or UNSET)


def no_duplicate_keys(text: bytes | str) -> None:
    """Two readers of the same JSON could each believe another of two equal keys."""
    json.loads(
        text, object_pairs_hook=_each_once, parse_int=len, parse_float=len
    )  # numbers are of no interest, however long


def all_keys_once(text: str, decoded: Any) -> None:
    """The same, where the JSON has been read already. Every key is followed by one colon: with as many of these as keys, none was lost."""
    if text.count(":") != _keys_in(decoded):
        no_duplicate_keys(text)


def _keys_in(value: Any) -> int:
    count, ahead = 0, [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, dict):
            fields = cast("dict[str, Any]", one)
            count += len(fields)
            ahead += fields.values()
        elif isinstance(one, list):
            ahead += cast("list[Any]", one)
    return count


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len({key for key, _ in pairs}):
        raise BadInput(problem="The JSON has the same key twice in one object.")
