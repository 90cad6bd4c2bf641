"""Hashes of passwords: argon2id, a few at once. RS-76"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Literal

from argon2 import PasswordHasher

from easel.errors import TooMany
from easel.host.people import hashes as module
from easel.host.people.hashes import PasswordHashes
from tests.host.people.hashers import cheap_hashes
from tests.requirements import rule

if TYPE_CHECKING:
    import pytest

PASSWORD = "gU7x-mokra-9ff"


class CountingHasher(PasswordHasher):
    """Counts calls, and how many run at the same time; each waits for another until `is_open`."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.calls: list[str] = []
        self.running = self.most = 0
        self.lock, self.open = threading.Lock(), threading.Event()

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
        with self.lock:
            self.calls.append(str(hash))
            self.running += 1
            self.most = max(self.most, self.running)
        self.open.wait(30)
        with self.lock:
            self.running -= 1
        return super().verify(hash, password)


@rule("RS-76")
async def test_hash_is_argon2id_with_the_usual_cost_and_verifies() -> None:
    hashes = PasswordHashes()
    stored = await hashes.hash(PASSWORD)
    assert stored.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert await hashes.verify(stored, PASSWORD)
    assert not await hashes.verify(stored, PASSWORD + "x")
    assert not hashes.is_outdated(stored)
    assert cheap_hashes().is_outdated(stored)


@rule("RS-76")
async def test_person_without_a_hash_costs_the_same_work_and_has_no_right_password() -> None:
    hasher = CountingHasher()
    hasher.open.set()
    hashes = PasswordHashes(hasher)
    for password in (PASSWORD, "", "\0" * 32):
        assert not await hashes.verify(None, password)
    assert not await hashes.verify("no hash", PASSWORD)
    [first, *_] = hasher.calls
    assert len(hasher.calls) == 4
    assert not hasher.check_needs_rehash(first), "it has the cost of the hasher"


@rule("RS-76")
async def test_at_most_two_hashes_are_computed_at_once_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    hasher = CountingHasher()
    hashes = PasswordHashes(hasher)
    waiting = [asyncio.create_task(hashes.verify(None, PASSWORD)) for _ in range(6)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [type(task.exception()) for task in done] == [TooMany]
    hasher.open.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (hasher.most, len(hasher.calls)) == (2, 5)
