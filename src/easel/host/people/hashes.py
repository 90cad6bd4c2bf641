"""Hashes of passwords: argon2id, in threads, a few at once.

A hash takes 64 MB and some tens of milliseconds, so that passwords cannot be guessed from a copy of the
database. Owns how many are computed at the same time. Does not know whose password it is.
"""

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from easel.errors import TooMany

MAX_AT_ONCE = 2
MAX_WAITING = 64  # each waits for a few seconds at most

Result = TypeVar("Result")


class PasswordHashes:
    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, "password")
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting_count = 0
        self._of_nobody = _hash_of_no_password(self._hasher)

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(
        self, stored: str | None, password: str, *, before: Callable[[], None] = lambda: None
    ) -> bool:
        """Return whether the password has this hash. Without a hash the same work is done, and it is wrong.

        `before` is called when it is the turn of this password; what it raises ends the attempt.
        """
        return await self._run(lambda: self._matches(stored or self._of_nobody, password), before)

    def is_outdated(self, stored: str) -> bool:
        """Return whether the hash was computed with other parameters than those of this version."""
        return self._hasher.check_needs_rehash(stored)

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], Result], before: Callable[[], None] = lambda: None) -> Result:
        if self._waiting_count >= MAX_WAITING:
            raise TooMany(what="passwords are being checked", limit=MAX_WAITING)
        self._waiting_count += 1
        try:
            async with self._slots:
                before()
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting_count -= 1


def _hash_of_no_password(hasher: PasswordHasher) -> str:
    """Return a hash with the parameters of the hasher that no password has: its digest is all zero."""
    salt, digest = (base64.b64encode(bytes(size)).decode().rstrip("=") for size in (16, hasher.hash_len))
    cost = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${cost}${salt}${digest}"
