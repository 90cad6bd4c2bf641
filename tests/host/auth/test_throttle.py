"""The throttle of sign-in: per address, overall, and in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.errors import TooManyFailures
from easel.host.auth import throttle as throttles
from easel.host.auth.throttle import SignInThrottle
from tests.requirements import rule

if TYPE_CHECKING:
    import pytest


class Attempts:
    """Tries at sign-in with a wrong token, and a clock that the test sets."""

    def __init__(self, max_failures: int = 3) -> None:
        self.now = 1_000.0
        self.throttle = SignInThrottle(max_failures, lambda: self.now)

    def delay(self, address: str, name: str = "") -> int:
        """Return the seconds that an address must wait; 0 counts a failure."""
        try:
            self.throttle.check(address, name)
        except TooManyFailures as problem:
            return problem.retry_after or 0
        self.throttle.note_failure(address, name)
        return 0


def test_delay_doubles_after_the_free_failures_up_to_a_minute() -> None:
    attempts = Attempts()
    assert [attempts.delay("10.0.0.1") for _ in range(3)] == [0, 0, 0]
    delays: list[int] = []
    for _ in range(9):
        delays.append(attempts.delay("10.0.0.1"))
        attempts.now += delays[-1]
        assert attempts.delay("10.0.0.1") == 0
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_other_addresses_are_not_delayed() -> None:
    attempts = Attempts()
    while attempts.delay("10.0.0.1") == 0:
        pass
    assert attempts.delay("10.0.0.2") == 0


def test_success_and_time_forget_the_failures_of_an_address() -> None:
    attempts = Attempts()
    for address in ("10.0.0.1", "10.0.0.2"):
        while attempts.delay(address) == 0:
            pass
    attempts.throttle.note_success("10.0.0.1")
    assert attempts.delay("10.0.0.1") == 0
    attempts.now += throttles.FORGET_SECONDS
    assert [attempts.delay("10.0.0.2") for _ in range(3)] == [0, 0, 0]


def test_many_failures_of_all_addresses_leave_each_address_its_first() -> None:
    attempts = Attempts()
    for n in range(31):
        assert attempts.delay(f"10.0.1.{n}") == 0
    assert attempts.delay("10.0.0.1") == 0, "another address can still sign in"
    assert attempts.delay("10.0.0.1") == 1
    attempts.now += throttles.WINDOW_SECONDS
    assert attempts.delay("10.0.0.1") == 0


def test_addresses_of_one_ipv6_prefix_count_together() -> None:
    attempts = Attempts()
    assert [attempts.delay(f"2001:db8::{n}") for n in range(4)] == [0, 0, 0, 1]
    assert attempts.delay("2001:db8:0:1::1") == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "MAX_ADDRESSES", 100)
    attempts = Attempts()
    for n in range(1_000):
        attempts.throttle.note_failure(f"host-{n}")
    assert len(attempts.throttle._by_address) == 100


@rule("RS-76")
def test_name_that_many_addresses_try_leaves_each_address_one_free_failure() -> None:
    attempts = Attempts()
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        assert attempts.delay(address, "ada") == 0
    assert attempts.delay("10.0.0.1", "ada") == 1, "though this address had one failure only"
    assert attempts.delay("10.0.0.1", "bob") == 0, "another name"
    for _ in range(50):  # an attack that goes on
        attempts.now += 1
        attempts.delay("10.0.0.1", "ada")
    assert attempts.delay("10.0.0.9", "ada") == 0, "the person is not locked out elsewhere"
    assert attempts.delay("10.0.0.9", "ada") == 1


@rule("RS-76")
def test_names_are_counted_in_bounded_memory_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "MAX_ADDRESSES", 3)
    attempts = Attempts(max_failures=1)
    for n in range(9):
        attempts.delay(f"10.0.0.{n}", f"name-{n}")
    assert list(attempts.throttle._by_name) == ["name-6", "name-7", "name-8"]
    attempts.now += throttles.FORGET_SECONDS
    assert [attempts.delay("10.0.0.8", "name-8") for _ in range(2)] == [0, 1]
