"""Helpers for tests of the canvas methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.gateway import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable


def add(key: str, value: Any) -> dict[str, Any]:
    """Return the operation of a patch that adds a member to the state."""
    return {"op": "add", "path": f"/{key}", "value": value}


async def refusal_of(call: Awaitable[Any]) -> Refused:
    """Return the error of a call that must fail."""
    with pytest.raises(Refused) as problem:
        await call
    return problem.value
