"""The strict check notices whatever a struct does not describe."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Struct, UnsetType

from tests.support.strict import ContractBroken, check


class Inner(Struct):
    n: int


class Outer(Struct):
    inner: Inner
    items: list[Inner]
    note: str | UnsetType = UNSET


EXACT: dict[str, Any] = {"inner": {"n": 1}, "items": [{"n": 2}]}


@pytest.mark.parametrize("value", [EXACT, EXACT | {"note": "x"}])
def test_exact_value_passes(value: Any) -> None:
    check(value, Outer)


@pytest.mark.parametrize(
    "value",
    [
        EXACT | {"more": 1},
        EXACT | {"inner": {"n": 1, "more": 1}},
        EXACT | {"items": [{"n": 2, "more": 1}]},
        EXACT | {"note": None},
        EXACT | {"inner": {"n": "1"}},
        {"inner": {"n": 1}},
        [],
    ],
)
def test_any_difference_is_found(value: Any) -> None:
    with pytest.raises(ContractBroken):
        check(value, Outer)
