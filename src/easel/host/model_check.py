"""A check whether a model answers: one small request, and what is wrong if it fails.

Knows a failure only by its HTTP status or network error, not by the library of a provider.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import server_of
from easel.core.run.conversation import Conversation, Part
from easel.errors import HostError
from easel.host.ports import Model

CHECK_SECONDS = 8.0
MAX_REASON_LENGTH = 300
CHECK_MESSAGE = Conversation("Reply with the word ok.")
# Gemini answers 400 to a wrong key.
KEY_REFUSED = ("api key not valid", "api_key_invalid", "invalid api key", "invalid x-api-key")


@dataclass(frozen=True, slots=True)
class ModelCheck:
    is_ok: bool
    text: str


async def check_model(choice: ModelChoice, model: Model, seconds: float = CHECK_SECONDS) -> ModelCheck:
    """Make one small request, end it at the first part of the answer, and explain a failure."""
    if choice.provider is Provider.SCRIPTED:
        return ModelCheck(is_ok=True, text="scripted, which needs no key and makes no request")
    name = f"{choice.model} of {server_of(choice.provider, choice.base_url)}"
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            parts = cast("AsyncGenerator[Part]", model.reply(CHECK_MESSAGE, ()))
            async with contextlib.aclosing(parts):
                async for _ in parts:
                    break
    except TimeoutError:
        if not limit.expired():
            raise
        return ModelCheck(is_ok=False, text=f"{name}: no answer within {seconds:g} s; {_check(choice)}.")
    except HostError as problem:
        return ModelCheck(is_ok=False, text=f"{name}: {explain(problem, choice)}")
    return ModelCheck(is_ok=True, text=f"{name} answers")


def explain(problem: BaseException, choice: ModelChoice) -> str:
    """Return what is wrong and what to do, by the HTTP status or the network error behind a failure."""
    causes = list(_chain(problem))
    texts = " ".join(str(cause) for cause in causes).lower()
    status = next((found for cause in causes if (found := _status(cause)) is not None), None)
    if status in (401, 403) or (status is not None and any(sign in texts for sign in KEY_REFUSED)):
        what = "the key was refused" if choice.api_key else "it needs a key and none is set"
        return f"{what} (HTTP {status}); set api_key."
    if status == 404:
        return f"unknown model or wrong address (HTTP 404); {_check(choice, 'model')}."
    if status == 429:
        return "too many requests, or no credit is left (HTTP 429); try again later, or check your account."
    if status is not None and status >= 500:
        return f"the provider has a problem (HTTP {status}); try again later."
    if status is not None:
        return f"the request was refused (HTTP {status}): {_reason(problem)}"
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "certificate" in texts or "[ssl" in texts:
        return f"the TLS connection failed ({_reason(causes[-1])}); {_check(choice)}."
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"its host name cannot be resolved; {_check(choice)}."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"no server listens there (connection refused); {_check(choice)}."
    if any(isinstance(cause, TimeoutError) for cause in causes) or "timed out" in texts:
        return f"the connection timed out; {_check(choice)}."
    if any(isinstance(cause, OSError) for cause in causes) or "connection" in texts:
        return f"it cannot be reached ({_reason(causes[-1])}); {_check(choice)}."
    return _reason(problem)


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and all that led to it; the first cause is the last one."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [problem]
    while pending:
        current = pending.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", current).exceptions
        pending += [current.__cause__, current.__context__]


def _status(problem: BaseException) -> int | None:
    """Return the HTTP status of an answer, by the names that the libraries of providers have for it."""
    for name in ("status_code", "status", "code"):
        status = getattr(problem, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return status
    return None


def _check(choice: ModelChoice, *names: str) -> str:
    """Return which settings to check."""
    host = urlsplit(choice.base_url).netloc
    own = [f"base_url ({host})"] if choice.base_url else []
    checked = [*names, *own]
    return f"check {' and '.join(checked)}" if checked else "check that this machine reaches the internet"


def _reason(problem: BaseException) -> str:
    text = problem.message if isinstance(problem, HostError) else str(problem) or type(problem).__name__
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[:MAX_REASON_LENGTH]}…"
