"""The limits of one account, over all instances together, and their text in EASEL_ACCOUNT_LIMITS."""

from dataclasses import dataclass, fields
from typing import Literal

from easel.core.validation import find_nearest
from easel.errors import BadInput

MAX_LIMIT = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """The limits of one account; 0: no limit."""

    requests_per_second: int = 5_000  # over HTTP and WebSockets
    token_requests_per_second: int = 5_000  # of these, with one of its tokens
    streams: int = 10_000  # open ones
    actions: int = 1_000  # canvas actions that run at once
    runs: int = 0  # that are executed at once; further ones wait
    queued_runs: int = 20_000  # that wait for a worker, for their session or for other runs of the account
    stored_mb: int = 0  # artifacts
    model_tokens_per_day: int = 0  # in and out, of a UTC day

    @property
    def has_totals(self) -> bool:
        """Whether the totals of accounts are limited."""
        return bool(self.stored_mb or self.model_tokens_per_day)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one account or token."""

    requests: int = 0  # since they began to count
    streams: int = 0  # open
    actions: int = 0  # running

    def of(self, kind: Literal["requests", "streams", "actions"]) -> int:
        return getattr(self, kind)


@dataclass(frozen=True, slots=True)
class Totals:
    """The stored bytes of one account, and the tokens that it used on one day."""

    stored_bytes: int
    model_tokens: int


def describe_defaults() -> str:
    return ", ".join(f"{field.name}={field.default}" for field in fields(AccountLimits))


def parse_limits(text: str) -> AccountLimits:
    """Return the limits of a text such as `runs=8,stored_mb=1000`; the others have their defaults.

    Raises `BadInput`.
    """
    names = [field.name for field in fields(AccountLimits)]
    limits: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in names:
            advice = f"; did you mean {nearest}?" if (nearest := find_nearest(name, names)) else "."
            raise BadInput(problem=f"{name!r} is not a limit of accounts{advice}")
        if name in limits:
            raise BadInput(problem=f"{name} is given twice.")
        if not (value.isascii() and value.isdigit()) or len(value) >= len(str(MAX_LIMIT)):
            raise BadInput(problem=f"{name} must be a whole number below {MAX_LIMIT}, not {value!r}.")
        limits[name] = int(value)
    return AccountLimits(**limits)
