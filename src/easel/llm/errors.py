"""Failures of provider requests as `ModelFailed`, with advice. No message contains a key.

Imported only with a provider's library.
"""

import re
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
)

from easel.core.model.choice import MIN_MASKED_KEY, ModelChoice, Provider
from easel.errors import ModelFailed
from easel.llm.open_responses import RefusedAnswer
from easel.llm.retries import Failure

MAX_QUOTE = 300  # characters of a provider's message
CUT = "the connection was cut before the answer's end"
NO_FINISH_REASON = "ended without a `finish_reason`"  # the library's words
_KEY_LIKE = re.compile(r"\b(sk|AIza|key|gsk|xai)[-_]?[A-Za-z0-9*_-]{8,}")

PROVIDER_NAMES = {
    Provider.OPENAI_CHAT: "OpenAI Chat",
    Provider.OPENAI_RESPONSES: "OpenAI Responses",
    Provider.GEMINI: "Gemini",
    Provider.ANTHROPIC: "Anthropic",
}


class BrokenAnswer(Exception):
    """The answer ended before it was complete, and may be asked for again."""


def to_failure(problem: Exception) -> Failure | None:
    """Return the failure for the retry rules, or None if the request must not be repeated."""
    if _find_refusal(problem) is not None:
        return None
    if isinstance(problem, BrokenAnswer | httpx2.TransportError | UnexpectedModelBehavior):
        return Failure(None)
    if not isinstance(problem, ModelAPIError):
        return None
    is_quota = isinstance(problem, ModelQuotaExceededError)
    if isinstance(problem, ModelHTTPError):
        may_retry = problem.provider_retry_hint
        return Failure(problem.status_code, problem.retry_after, may_retry, is_quota)
    if isinstance(problem, ModelRequestRejectedError):
        return None
    return Failure(None, problem.retry_after, is_quota=is_quota)


def to_model_failed(problem: Exception, choice: ModelChoice, attempts: int = 1) -> ModelFailed:
    """Return the error that the user reads. Quotes the provider only where that helps, without keys."""
    reason = _reason(problem, choice)
    if attempts > 1:
        reason = f"{reason} (after {attempts} attempts)"
    return ModelFailed(reason=_without_key(reason, choice.api_key))


def _reason(problem: Exception, choice: ModelChoice) -> str:
    name = PROVIDER_NAMES.get(choice.provider, choice.provider.value)
    where = f"{name} at {_host(choice.base_url)}" if choice.base_url else name
    problem = _find_refusal(problem) or problem
    match problem:
        case BrokenAnswer() | RefusedAnswer():
            return f"{where}: {problem}"
        case ModelTimeoutError():
            return f"{where} did not answer in time."
        case ModelConnectionError(phase="connect"):
            return f"there is no route to {where}: {_cause(problem)}; check the address and the network."
        case ModelConnectionError() | httpx2.TransportError():
            return f"{where}: {CUT}: {_cause(problem)}."
        case ModelHTTPError() | ModelRequestRejectedError() | ModelAPIError(in_stream=True):
            return _refusal(problem, choice, where)
        case ModelAPIError() if problem.message.endswith(NO_FINISH_REASON):
            return f"{where}: {CUT}."
        case ModelAPIError() | UnexpectedModelBehavior():
            return f"{where}: its answer cannot be read."
        case _:
            return f"{where}: its answer cannot be read ({type(problem).__name__})."


def _refusal(problem: ModelAPIError, choice: ModelChoice, where: str) -> str:
    """Return what the provider's own error says, which is an HTTP answer or a part of a stream."""
    match problem:
        case ModelHTTPError() if _is_about_key(problem):
            return f"{where} refused the API key{_status(problem)}; check the key and what it may use."
        case ModelNotFoundError():
            hint = " and the base URL" if choice.base_url else ""
            return f"{where} does not know the model {choice.model}{_status(problem)}; check its name{hint}."
        case ModelQuotaExceededError():
            return f"{where}: the quota or credit of this key is used up{_status(problem)}.{_quote(problem)}"
        case ModelContextWindowExceededError():
            return f"{where}: the conversation is longer than {choice.model} takes; lower the token budget."
        case ModelRateLimitError():
            wait = f"; it asks to wait {problem.retry_after:.0f} s" if problem.retry_after else ""
            return f"{where} limits the rate of requests{_status(problem)}{wait}."
        case ModelHTTPError(status_code=status) if status >= 500:
            return f"{where} is unavailable (HTTP {status}).{_quote(problem)}"
        case ModelHTTPError() | ModelRequestRejectedError():
            return f"{where} rejected the request{_status(problem)}.{_quote(problem)}"
        case _:
            return f"{where} ended its answer with an error.{_quote(problem)}"


def _find_refusal(problem: BaseException | None) -> RefusedAnswer | None:
    """Return the refusal behind an exception: the SDKs report it as a lost connection."""
    while problem is not None and not isinstance(problem, RefusedAnswer):
        problem = problem.__cause__ or problem.__context__
    return problem


def _is_about_key(problem: ModelHTTPError) -> bool:
    """Return whether the key was refused. Gemini does that as HTTP 400."""
    if isinstance(problem, ModelAuthenticationError) or problem.status_code in (401, 403):
        return True
    return problem.status_code == 400 and "api key not valid" in str(problem.body).lower()


def _status(problem: Exception) -> str:
    return f" (HTTP {problem.status_code})" if isinstance(problem, ModelHTTPError) else ""


def _host(base_url: str) -> str:
    """Return the host of an address, without a user's name, password, path or query."""
    parts = urlsplit(base_url)
    return f"{parts.hostname or base_url}:{parts.port}" if parts.port else parts.hostname or "its base URL"


def _cause(problem: Exception) -> str:
    """Return the first sentence of a connection's failure."""
    cause: BaseException = problem
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return (str(cause) or type(cause).__name__)[:MAX_QUOTE].rstrip(".")


def _quote(problem: ModelAPIError) -> str:
    """Return the message of the provider's error body. A body of another shape is not quoted."""
    body = problem.body
    if isinstance(body, dict):
        inner = cast("dict[str, Any]", body).get("error", cast("dict[str, Any]", body))
        message = cast("dict[str, Any]", inner).get("message") if isinstance(inner, dict) else inner
        if isinstance(message, str) and message.strip():
            text = " ".join(message.split())
            return f" It says: {text[:MAX_QUOTE]}{'…' if len(text) > MAX_QUOTE else ''}"
    return ""


def _without_key(text: str, api_key: str) -> str:
    if len(api_key) >= MIN_MASKED_KEY:
        text = text.replace(api_key, "[key]")
    return _KEY_LIKE.sub("[key]", text)
