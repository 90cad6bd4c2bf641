"""Times in SQLite: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def to_datetime(stored: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stored)


def from_datetime(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND
