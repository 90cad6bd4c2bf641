"""The throttle of sign-in: after wrong tokens, further ones are refused for a growing time.

Owns the failures of each address and of all addresses together, in bounded memory. Each instance counts its
own. Does not know tokens.
"""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from easel.errors import TooManyFailures

WINDOW_SECONDS = 60.0  # in which the allowed failures of all addresses together are counted
FORGET_SECONDS = 600.0  # after which the failures of an address are forgotten
MAX_DELAY_SECONDS = 60.0
MAX_ADDRESSES = 10_000
OVERALL_FACTOR = 10  # the failures that all addresses together may have, in multiples of one address
IPV6_PREFIX = 64  # a machine can use any address of its prefix


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


class SignInThrottle:
    """`max_failures` wrong tokens of one address are free; each further one doubles the delay after it.

    If all addresses together have too many failures, only the first one of each address is free. So a
    distributed attack slows down, and a person at another address can still sign in.
    """

    def __init__(self, max_failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_failures = max_failures
        self._clock = clock
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()  # the latest failure last
        self._overall = 0.0  # failures of all addresses, decreasing over the window
        self._overall_at = 0.0

    def check(self, address: str) -> None:
        """Raise `TooManyFailures` if this address must not try now."""
        now = self._clock()
        failures = self._by_address.get(_group(address))
        if failures is None or now - failures.last_at >= FORGET_SECONDS:
            return
        is_attack = self._overall_count(now) > self._max_failures * OVERALL_FACTOR
        excess = failures.count - (1 if is_attack else self._max_failures)
        if excess < 0:
            return
        delay = min(2.0 ** min(excess, 16), MAX_DELAY_SECONDS)
        if (seconds := failures.last_at + delay - now) > 0:
            raise TooManyFailures.after(math.ceil(seconds))

    def note_failure(self, address: str) -> None:
        now, group = self._clock(), _group(address)
        self._overall, self._overall_at = self._overall_count(now) + 1, now
        failures = self._by_address.pop(group, None)
        is_new = failures is None or now - failures.last_at >= FORGET_SECONDS
        self._by_address[group] = _Failures(1 if failures is None or is_new else failures.count + 1, now)
        while len(self._by_address) > MAX_ADDRESSES:
            self._by_address.popitem(last=False)

    def note_success(self, address: str) -> None:
        self._by_address.pop(_group(address), None)

    def _overall_count(self, now: float) -> float:
        rate = self._max_failures * OVERALL_FACTOR / WINDOW_SECONDS
        return max(0.0, self._overall - (now - self._overall_at) * rate)


def _group(address: str) -> str:
    """Return the address, or the prefix of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), IPV6_PREFIX), strict=False))
