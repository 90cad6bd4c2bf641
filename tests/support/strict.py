"""Strict decoding of what Easel sends: a value must be exactly what its struct describes.

A member that the struct does not have, one that is missing, and one of another type break the contract.
"""

from __future__ import annotations

from typing import Any

import msgspec


class NotAsDescribed(AssertionError):
    """The server sent a value that its struct does not describe."""


def check(value: Any, shape: Any) -> None:
    """Raise `NotAsDescribed` unless the decoded JSON `value` is a complete and exact value of `shape`.

    Encoding the decoded struct must return the same JSON: a member that the struct does not have is lost on
    the way, however deep it is.
    """
    try:
        again = msgspec.to_builtins(msgspec.convert(value, shape))
    except msgspec.ValidationError as problem:
        raise NotAsDescribed(f"{problem}: {str(value)[:500]}") from None
    if again != value:
        raise NotAsDescribed(f"not described by {shape}: {str(value)[:500]} is decoded as {str(again)[:500]}")
