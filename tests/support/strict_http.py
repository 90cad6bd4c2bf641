"""Strict decoding of HTTP answers: each JSON answer must be exactly the struct of its route, or an error.

Owns which row of `ROUTES` has answered a request. A client of the tests has `STRICT` or `STRICT_ASYNC` as its
`event_hooks`. An answer of `/api/rpc` is the result of its method; `/openapi.json` has no struct.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import compile_path

from easel.edges.http.routes import ROUTES
from easel.edges.http.wire import ErrorAnswer
from tests.support.strict import check, check_error, check_result

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from easel.edges.http.calls import Row

RPC = "/api/rpc"
PATHS = [(compile_path(row.path)[0], row) for row in ROUTES]


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


def check_body(request: httpx2.Request, status: int, body: bytes) -> None:
    """Raise `ContractBroken` unless the answer is exactly as its row, its method or the errors describe."""
    is_result = request.url.path == RPC and status < 400
    shape = shape_of(request.method, request.url.path, status)
    if shape is None and not is_result:
        return
    sent: Any = msgspec.json.decode(body)
    if is_result:
        check_result(json.loads(request.content)["method"], sent)
        return
    if shape is ErrorAnswer:
        check_error(sent["error"])
    sent.pop("warnings", None)  # of any answer: the ignored members of the request
    check(sent, shape)


def _is_checked(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type") == "application/json" and answer.request.method != "HEAD"


def check_response(answer: httpx2.Response) -> None:
    if _is_checked(answer):
        check_body(answer.request, answer.status_code, answer.read())


async def check_response_async(answer: httpx2.Response) -> None:
    if _is_checked(answer):
        check_body(answer.request, answer.status_code, await answer.aread())


STRICT: dict[str, list[Callable[..., Any]]] = {"response": [check_response]}
STRICT_ASYNC: dict[str, list[Callable[..., Any]]] = {"response": [check_response_async]}
