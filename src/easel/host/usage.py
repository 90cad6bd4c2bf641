"""The usage of accounts, and their limits, except those of the queue of runs.

Owns two kinds. Requests, streams and actions are counted in memory; once a second an instance stores its
counts of the accounts and tokens in use and reads those of the others, so that no request costs a query, and
a limit holds over all instances within about a second. Stored bytes and model tokens are totals in the
database, which are read only if they are limited. Does not know runs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from easel.core.account_limits import AccountLimits, Counts
from easel.core.principal import Principal
from easel.core.run.conversation import Usage
from easel.errors import TooLarge, TooMany
from easel.host.periodic import Periodic
from easel.host.ports import UsageStore
from easel.ids import AccountId

EXCHANGE_SECONDS = 1.0
EXPIRE_SECONDS = 5.0  # after which the counts of an instance that stopped are ignored
SWEEP_EXCHANGES = 60  # between two deletions of expired counts
BURST_SECONDS = 5  # for which unused requests are saved up
MEGABYTE = 1_000_000

Held = Literal["streams", "actions"]


@dataclass(slots=True)
class _Usage:
    """The usage of one account or token on this instance."""

    rate: int  # requests per second
    refilled_at: float
    allowance: float = field(init=False)  # requests that may be made now; below 0: others made them
    requests: int = 0
    held: dict[Held, int] = field(default_factory=lambda: {"streams": 0, "actions": 0})
    stored: Counts | None = None  # the counts at the last exchange
    others: Counts | None = None  # of the other instances, at the last exchange
    has_lost: bool = False  # whether another instance's row has expired, and its sum has not risen again

    def __post_init__(self) -> None:
        self.allowance = self.burst

    @property
    def burst(self) -> int:
        return self.rate * BURST_SECONDS

    @property
    def counts(self) -> Counts:
        return Counts(self.requests, self.held["streams"], self.held["actions"])

    def refill(self, now: float) -> None:
        self.allowance = min(self.burst, self.allowance + (now - self.refilled_at) * self.rate)
        self.refilled_at = now

    def note_others(self, others: Counts) -> None:
        """Take the requests that other instances answered since the last exchange from the allowance.

        Their sum falls when the row of one has expired, as after a stall, and rises by all of its requests
        when it is back: that rise is not counted.
        """
        if self.others is not None:
            made = others.requests - self.others.requests
            if made > 0 and not self.has_lost:
                self.allowance = max(-self.burst, self.allowance - made)
            self.has_lost = made < 0 or (self.has_lost and made == 0)
        self.others = others

    def is_idle(self, now: float) -> bool:
        """Return whether a new value would be the same for the limits."""
        self.refill(now)
        is_unused = self.counts == self.stored and not any(self.held.values())
        return is_unused and self.allowance >= self.burst


class AccountUsage:
    """The counts of this instance. `is_shared`: other instances use the same database."""

    def __init__(
        self,
        limits: AccountLimits,
        store: UsageStore,
        instance_id: str,
        *,
        is_shared: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._store = store
        self._instance_id = instance_id
        self._is_shared = is_shared
        self._clock = clock
        self._usages: dict[str, _Usage] = {}  # by account or token
        self._exchange_count = 0
        self.periodic = Periodic("usage.exchange", EXCHANGE_SECONDS, self.exchange, delay=EXCHANGE_SECONDS)

    def count_request(self, principal: Principal) -> None:
        """Count a request of this principal. Raises `TooMany` over the limit of its account or token."""
        limits, usages = self._limits, list[_Usage]()
        if limits.requests_per_second:
            usages.append(
                self._require(principal.account_id, "requests_per_second", limits.requests_per_second)
            )
        if limits.token_requests_per_second and principal.token_id is not None:
            usages.append(
                self._require(
                    principal.token_id, "token_requests_per_second", limits.token_requests_per_second
                )
            )
        for usage in usages:
            usage.allowance -= 1
            usage.requests += 1

    def _require(self, subject: str, name: str, rate: int) -> _Usage:
        usage = self._find(subject, rate)
        usage.refill(self._clock())
        if usage.allowance < 1:
            raise TooMany.of_account(name, rate, math.ceil((1 - usage.allowance) / rate))
        return usage

    def check(self, kind: Held, account_id: AccountId) -> None:
        """Raise `TooMany` if the account has as many of these as it may have."""
        limit = self._limits.streams if kind == "streams" else self._limits.actions
        usage = self._usages.get(account_id)
        if not limit or usage is None:
            return
        elsewhere = 0 if usage.others is None else usage.others.of(kind)
        if usage.held[kind] + elsewhere >= limit:
            raise TooMany.of_account(kind, limit)

    def hold(self, kind: Held, account_id: AccountId, change: int) -> None:
        """Count one more (1) or one less (-1)."""
        usage = self._find(account_id, self._limits.requests_per_second)
        usage.held[kind] += change

    def _find(self, subject: str, rate: int) -> _Usage:
        usage = self._usages.get(subject)
        if usage is None:
            usage = self._usages[subject] = _Usage(rate, self._clock())
        return usage

    async def exchange(self) -> None:
        """Store what was counted here, read what the others counted, and forget what is not in use."""
        self._exchange_count += 1
        now = self._clock()
        self._usages = {name: usage for name, usage in self._usages.items() if not usage.is_idle(now)}
        stored = {subject: usage.counts for subject, usage in self._usages.items()}
        others = dict[str, Counts]()
        if self._is_shared and stored:
            others = await self._store.exchange(self._instance_id, stored, EXPIRE_SECONDS)
        for subject, counts in stored.items():  # none is forgotten but here
            self._usages[subject].stored = counts
            self._usages[subject].note_others(others.get(subject, Counts()))
        if self._is_shared and self._exchange_count % SWEEP_EXCHANGES == 0:
            await self._store.delete_expired()


class AccountBudget:
    """The totals of accounts: stored bytes, and model tokens of a UTC day."""

    def __init__(
        self,
        limits: AccountLimits,
        store: UsageStore,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._max_bytes = limits.stored_mb * MEGABYTE
        self._max_tokens = limits.model_tokens_per_day
        self._limits = limits
        self._store = store
        self._now = now

    async def check_storage(self, account_id: AccountId) -> None:
        """Raise `TooLarge` if the account has stored as much as it may store."""
        if self._max_bytes:
            totals = await self._store.totals(account_id, self._today)
            self._compare_storage(totals.stored_bytes)

    async def check_step(self, account_id: AccountId) -> None:
        """Raise `TooMany` or `TooLarge` if a run of the account must not call the model again."""
        if not self._max_bytes and not self._max_tokens:
            return
        totals = await self._store.totals(account_id, self._today)
        self._compare_storage(totals.stored_bytes)
        if self._max_tokens and totals.model_tokens >= self._max_tokens:
            now = self._now()
            midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
            seconds = math.ceil((midnight - now).total_seconds())
            raise TooMany.of_account("model_tokens_per_day", self._max_tokens, seconds)

    def _compare_storage(self, stored_bytes: int) -> None:
        if self._max_bytes and stored_bytes >= self._max_bytes:
            raise TooLarge.of_account("stored_mb", self._limits.stored_mb)

    async def count_tokens(self, account_id: AccountId, usage: Usage | None) -> None:
        """Count the tokens of a model call, if they are limited."""
        if self._max_tokens and usage is not None and usage.total:
            await self._store.add_model_tokens(account_id, self._today, usage.total)

    @property
    def _today(self) -> str:
        return self._now().date().isoformat()
