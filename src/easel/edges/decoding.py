"""Decoding of requests into structs, and of the account that they name. Unknown members are ignored. RS-67

Owns which members of a request its struct does not have. A struct forbids unknown members, so that a request
without any is decoded as fast as before; only one that is refused is searched. Does not know transports.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
from msgspec import inspect
from starlette.requests import HTTPConnection

from easel.core.account import is_account_name
from easel.core.principal import Principal
from easel.core.unknown_members import UnknownMember, review_unknown_members
from easel.errors import BadInput, HostError, NotFound
from easel.ids import AccountId


class Params(msgspec.Struct, forbid_unknown_fields=True):
    """Params of a method, or the body or query of a request. Unknown members are ignored with a warning."""


class NoParams(Params):
    pass


class Decoded(NamedTuple):
    params: Any
    warnings: list[str]


def decode_members(value: Any, shape: type[Any], *, strict: bool = True) -> Decoded:
    """Convert a JSON value to the struct `shape`; null is an empty object.

    Raises `BadInput` for an unknown member that must not be ignored, and `msgspec.ValidationError`.
    `strict=False` converts text to numbers, as in a query.
    """
    members: Any = {} if value is None else value
    try:
        return Decoded(msgspec.convert(members, type=shape, strict=strict), [])
    except msgspec.ValidationError:
        found: list[UnknownMember] = []
        kept = _without_unknown(members, _describe(shape), "", found)
        if not found:
            raise
    warnings = review_unknown_members(found)
    try:
        return Decoded(msgspec.convert(kept, type=shape, strict=strict), warnings)
    except msgspec.ValidationError as problem:
        raise msgspec.ValidationError(f"{problem} ({' '.join(warnings).rstrip('.')})") from None


def decode_json(text: bytes | str, shape: Any) -> Decoded:
    """Decode JSON text to the struct `shape`, or to one of several; an empty text is an empty object.

    Raises `BadInput` and `msgspec.MsgspecError`, as `decode_members`.
    """
    if not text or text.isspace():
        return decode_members({}, shape)
    try:
        return Decoded(msgspec.json.decode(text, type=shape), [])
    except msgspec.ValidationError:
        return decode_members(msgspec.json.decode(text), shape)


class HasWarnings(Protocol):
    warnings: list[str] | msgspec.UnsetType


Answer = TypeVar("Answer", bound=HasWarnings)


def with_warnings(answer: Answer, warnings: list[str]) -> Answer:
    """Return the answer with these warnings after its own."""
    if warnings:
        answer.warnings = [*(answer.warnings or ()), *warnings]
    return answer


def warn_in_error(problem: HostError, warnings: list[str]) -> None:
    """Add the warnings about the request to the details of the error that answers it."""
    if warnings:
        problem.details["warnings"] = [*cast("list[str]", problem.details.get("warnings", [])), *warnings]


@cache
def _describe(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


@cache
def _fields(struct: type[Any]) -> Mapping[str, inspect.Type]:
    kind = cast("inspect.StructType", _describe(struct))
    fields = {field.encode_name: field.type for field in kind.fields}
    return fields if kind.tag_field is None else {kind.tag_field: inspect.AnyType(), **fields}


def _without_unknown(value: Any, kind: inspect.Type, at: str, found: list[UnknownMember]) -> Any:
    """Return the value without unknown members of its structs, which are added to `found`."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[Any, Any]", value)
    for option in _options(kind):
        if isinstance(option, inspect.StructType) and _has_tag(members, option):
            fields = _fields(option.cls)
            found += [UnknownMember(str(name), fields.keys(), at) for name in members if name not in fields]
            return {
                name: _without_unknown(members[name], inner, f"{at}.{name}" if at else name, found)
                for name, inner in fields.items()
                if name in members
            }
        if isinstance(option, inspect.DictType) and _has_structs(option.value_type):
            return {
                name: _without_unknown(item, option.value_type, f"{at}.{name}", found)
                for name, item in members.items()
            }
    return members


def _options(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types that a value may have, without their descriptions and limits."""
    if isinstance(kind, inspect.Metadata):
        yield from _options(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for option in kind.types:
            yield from _options(option)
    else:
        yield kind


def _has_structs(kind: inspect.Type) -> bool:
    return any(isinstance(option, inspect.StructType) for option in _options(kind))


def _has_tag(members: dict[Any, Any], kind: inspect.StructType) -> bool:
    return kind.tag_field is None or members.get(kind.tag_field) == kind.tag


# -- the account of a request ------------------------------------------------------------------------------

ACCOUNT_HEADER, ACCOUNT_QUERY = "easel-account", "account"  # the query is for links, streams and sockets


def named_account(connection: HTTPConnection) -> AccountId | None:
    """Return the account that a request names; None: that of the credential.

    Raises `BadInput`, and `NotFound` for a name that no account can have.
    """
    query = connection.query_params.getlist(ACCOUNT_QUERY)
    names = {*connection.headers.getlist(ACCOUNT_HEADER), *query}
    if len(names) > 1:
        raise BadInput(problem=f"The header Easel-Account and ?{ACCOUNT_QUERY}= differ; send one of them.")
    if names == {""}:
        raise BadInput(problem=f"Easel-Account, or ?{ACCOUNT_QUERY}=, must be the name of an account.")
    name = names.pop() if names else None
    if name is not None and not is_account_name(name):
        raise _not_found(name)
    return None if name is None else AccountId(name)


def check_account(connection: HTTPConnection, principal: Principal) -> None:
    """Raise `NotFound` for another account than that of the token. RS-76"""
    if named_account(connection) not in (None, principal.account_id):
        raise account_not_found(connection)


def account_not_found(connection: HTTPConnection) -> NotFound:
    """Return the error for an account without rights in it, whether or not it exists."""
    return _not_found(named_account(connection) or "")


def _not_found(name: str) -> NotFound:
    return NotFound(what="account", id=name[:100])
