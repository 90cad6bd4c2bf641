"""Strict decoding of HTTP answers: the payload of each method of `/api/rpc`, and every error.

A client of the tests has `STRICT` or `STRICT_ASYNC` as its `event_hooks`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from easel.edges.http.wire import ErrorAnswer
from tests.support.strict import check, check_error, check_result

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2


def is_described(answer: httpx2.Response) -> bool:
    is_json = answer.headers.get("content-type") == "application/json" and answer.request.method != "HEAD"
    return is_json and (answer.status_code >= 400 or answer.request.url.path == "/api/rpc")


def check_body(answer: httpx2.Response) -> None:
    body = answer.json()
    if answer.status_code >= 400:
        check(body, ErrorAnswer)
        check_error(body["error"])
    else:
        check_result(json.loads(answer.request.content)["method"], body)


def check_response(answer: httpx2.Response) -> None:
    if is_described(answer):
        answer.read()
        check_body(answer)


async def check_response_async(answer: httpx2.Response) -> None:
    if is_described(answer):
        await answer.aread()
        check_body(answer)


STRICT: dict[str, list[Callable[..., Any]]] = {"response": [check_response]}
STRICT_ASYNC: dict[str, list[Callable[..., Any]]] = {"response": [check_response_async]}
