"""Hashes of passwords that cost little, for tests."""

from __future__ import annotations

from argon2 import PasswordHasher

from easel.host.people.hashes import PasswordHashes


def cheap_hashes(rounds: int = 1) -> PasswordHashes:
    return PasswordHashes(PasswordHasher(time_cost=rounds, memory_cost=8, parallelism=1))
