"""Which failures of a provider are repeated, and after how long."""

import pytest

from easel.llm.retries import NO_RETRIES, Failure, RetrySettings, is_retriable, retry_wait_seconds

SETTINGS = RetrySettings(max_attempts=4, first_wait_seconds=1, max_wait_seconds=3)


@pytest.mark.parametrize(
    "failure, expected",
    [
        (Failure(429), True),
        (Failure(500), True),
        (Failure(529), True),
        (Failure(None), True),  # the connection was cut or refused
        (Failure(400), False),
        (Failure(401), False),
        (Failure(404), False),
        (Failure(429, is_quota=True), False),
        (Failure(500, may_retry=False), False),
        (Failure(400, may_retry=True), True),
    ],
)
def test_only_passing_failures_are_retried(failure: Failure, expected: bool):
    assert is_retriable(failure) is expected


def test_waits_double_up_to_the_limit_and_end_with_the_attempts():
    waits = [retry_wait_seconds(Failure(500), attempt, SETTINGS, jitter=1) for attempt in range(1, 5)]
    assert waits == [1, 2, 3, None]
    assert retry_wait_seconds(Failure(500), 1, NO_RETRIES, jitter=1) is None


def test_jitter_shortens_a_wait_by_at_most_half():
    assert retry_wait_seconds(Failure(500), 1, SETTINGS, jitter=0) == 0.5


def test_time_that_the_provider_names_is_honoured_within_the_limit():
    assert retry_wait_seconds(Failure(429, 2.5), 1, SETTINGS, jitter=0) == 2.5
    assert retry_wait_seconds(Failure(429, 0.1), 1, SETTINGS, jitter=1) == 1
    assert retry_wait_seconds(Failure(429, 3.1), 1, SETTINGS, jitter=0) is None
