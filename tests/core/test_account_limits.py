"""The text of the limits of accounts."""

from __future__ import annotations

import pytest

from easel.core.account_limits import AccountLimits, parse_limits
from easel.errors import BadInput


def test_limits_that_are_not_named_have_their_defaults():
    assert parse_limits("") == AccountLimits()
    assert parse_limits(" runs=8, stored_mb = 1000 ,") == AccountLimits(runs=8, stored_mb=1000)
    assert parse_limits("queued_runs=0").queued_runs == 0


@pytest.mark.parametrize(
    "text, problem",
    [
        ("run=8", "did you mean runs?"),
        ("x=8", "'x' is not a limit of accounts."),
        ("runs", "runs must be a whole number"),
        ("runs=-1", "runs must be a whole number"),
        ("runs=1.5", "not '1.5'"),
        ("runs=" + "9" * 30, "runs must be a whole number"),
        ("runs=1,runs=2", "runs is given twice"),
    ],
)
def test_wrong_limit_says_what_is_wrong(text: str, problem: str):
    with pytest.raises(BadInput) as refused:
        parse_limits(text)
    assert problem in refused.value.message
