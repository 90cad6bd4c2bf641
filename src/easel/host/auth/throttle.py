"""The throttle of sign-in: after wrong tokens and passwords, further ones are refused for a growing time.

Owns the failures of each address, of each name and of all addresses together, in bounded memory. Each
instance counts its own. Does not know tokens, and counts a name that does not exist as any other.
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
MAX_ADDRESSES = 10_000  # and as many names
OVERALL_FACTOR = 10  # the failures that all addresses together may have, in multiples of one address
IPV6_PREFIX = 64  # a machine can use any address of its prefix


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


class SignInThrottle:
    """`max_failures` wrong tokens of one address are free; each further one doubles the delay after it.

    If all addresses together have too many failures, or had too many for one name, only the first one of each
    address is free. So a distributed attack slows down, and a person at another address can still sign in:
    an attacker cannot lock out a name.
    """

    def __init__(self, max_failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_failures = max_failures
        self._clock = clock
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()  # the latest failure last
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()  # likewise, of passwords
        self._overall = 0.0  # failures of all addresses, decreasing over the window
        self._overall_at = 0.0

    def check(self, address: str, name: str = "") -> None:
        """Raise `TooManyFailures` if this address must not try now, with the password of this name if any."""
        now = self._clock()
        failures = _find(self._by_address, _group(address), now)
        if failures is None:
            return
        of_name = _find(self._by_name, name, now)
        is_attack = self._overall_count(now) > self._max_failures * OVERALL_FACTOR or (
            of_name is not None and of_name.count >= self._max_failures
        )
        excess = failures.count - (1 if is_attack else self._max_failures)
        if excess < 0:
            return
        delay = min(2.0 ** min(excess, 16), MAX_DELAY_SECONDS)
        if (seconds := failures.last_at + delay - now) > 0:
            raise TooManyFailures.after(math.ceil(seconds))

    def note_failure(self, address: str, name: str = "") -> None:
        now = self._clock()
        self._overall, self._overall_at = self._overall_count(now) + 1, now
        _count(self._by_address, _group(address), now)
        if name:
            _count(self._by_name, name, now)

    def note_success(self, address: str) -> None:
        """Forget the failures of the address after a right token.

        A right password does not call this: with it one could try those of others for ever.
        """
        self._by_address.pop(_group(address), None)

    def _overall_count(self, now: float) -> float:
        rate = self._max_failures * OVERALL_FACTOR / WINDOW_SECONDS
        return max(0.0, self._overall - (now - self._overall_at) * rate)


def _find(failures: OrderedDict[str, _Failures], key: str, now: float) -> _Failures | None:
    found = failures.get(key)
    return None if found is None or now - found.last_at >= FORGET_SECONDS else found


def _count(failures: OrderedDict[str, _Failures], key: str, now: float) -> None:
    before = _find(failures, key, now)
    failures.pop(key, None)
    failures[key] = _Failures(1 if before is None else before.count + 1, now)
    while len(failures) > MAX_ADDRESSES:
        failures.popitem(last=False)


def _group(address: str) -> str:
    """Return the address, or the prefix of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), IPV6_PREFIX), strict=False))
