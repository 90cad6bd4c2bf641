"""Retries of provider requests: which failures are repeated, and after how long.

The SDKs' own retries are off, so that the waits are known. Has no clock: a wait is a number of seconds.
"""

from dataclasses import dataclass

RETRIED_STATUSES = frozenset({408, 409, 425, 429})  # and every 5xx


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Waits double from `first_wait_seconds` to `max_wait_seconds`, unless the provider names a time."""

    max_attempts: int = 5
    first_wait_seconds: float = 1.0
    max_wait_seconds: float = 30.0


DEFAULT_RETRIES = RetrySettings()
NO_RETRIES = RetrySettings(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request: its HTTP status, or None if the connection failed, and the provider's advice."""

    status: int | None
    retry_after_seconds: float | None = None
    may_retry: bool | None = None  # the header `x-should-retry`
    is_quota: bool = False  # no credit is left, which waiting does not change


def is_retriable(failure: Failure) -> bool:
    if failure.is_quota:
        return False
    if failure.may_retry is not None:
        return failure.may_retry
    return failure.status is None or failure.status in RETRIED_STATUSES or failure.status >= 500


def retry_wait_seconds(
    failure: Failure, attempt: int, settings: RetrySettings, *, jitter: float
) -> float | None:
    """Return the wait after this attempt (from 1), or None if the request must not be repeated.

    A request is not repeated if the provider requires a longer wait than `max_wait_seconds`.
    `jitter` from 0 to 1 spreads requests that failed together.
    """
    if attempt >= settings.max_attempts or not is_retriable(failure):
        return None
    doubled = settings.first_wait_seconds * 2 ** (attempt - 1)
    wait = min(doubled, settings.max_wait_seconds) * (0.5 + jitter / 2)
    if failure.retry_after_seconds is None:
        return wait
    if failure.retry_after_seconds > settings.max_wait_seconds:
        return None
    return max(failure.retry_after_seconds, wait)
