"""Strict decoding of HTTP answers: each JSON answer must be exactly the struct of its route, or an error.

Owns which row of `ROUTES` has answered a request. A client of the tests has `STRICT` or `STRICT_ASYNC` as its
`event_hooks`. The answers of `/api/rpc` and `/openapi.json` have no struct of a route.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import compile_path

from easel.edges.http.routes import ROUTES
from easel.edges.http.wire import ErrorAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from easel.edges.http.calls import Row

PATHS = [(compile_path(row.path)[0], row) for row in ROUTES]


class NotAsDescribed(AssertionError):
    """The server sent JSON that the struct of its route does not describe."""


@cache
def find_row(method: str, path: str) -> Row | None:
    """Return the row that serves this request, or None."""
    return next((row for pattern, row in PATHS if row.method == method and pattern.match(path)), None)


def shape_of(method: str, path: str, status: int) -> type[Any] | None:
    """Return the struct of a JSON answer with this status, or None if its route has none."""
    if status >= 400:
        return ErrorAnswer
    row = find_row(method, path)
    shape = None if row is None else row.accepted if status == 202 and row.accepted else row.response
    return shape if isinstance(shape, type) else None


def check(body: bytes, shape: type[Any]) -> None:
    """Raise `NotAsDescribed` unless encoding the decoded struct returns the same JSON.

    A member that the struct does not have is lost on the way, however deep it is.
    """
    sent: Any = msgspec.json.decode(body)
    sent.pop("warnings", None)  # of any answer: the ignored members of the request
    try:
        again: Any = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(body, type=shape)))
    except msgspec.ValidationError as problem:
        raise NotAsDescribed(f"{shape.__name__}: {problem}: {sent!s:.500}") from None
    if again != sent:
        raise NotAsDescribed(f"{shape.__name__} does not describe {sent!s:.500}: it becomes {again!s:.500}")


def _described(answer: httpx2.Response) -> type[Any] | None:
    request = answer.request
    if answer.headers.get("content-type") != "application/json" or request.method == "HEAD":
        return None
    return shape_of(request.method, request.url.path, answer.status_code)


def check_response(answer: httpx2.Response) -> None:
    if (shape := _described(answer)) is not None:
        check(answer.read(), shape)


async def check_response_async(answer: httpx2.Response) -> None:
    if (shape := _described(answer)) is not None:
        check(await answer.aread(), shape)


STRICT: dict[str, list[Callable[..., Any]]] = {"response": [check_response]}
STRICT_ASYNC: dict[str, list[Callable[..., Any]]] = {"response": [check_response_async]}
