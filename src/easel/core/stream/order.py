"""The order of all events of an account: one number for each event, over all logs of the account.

Owns how appends are numbered. Numbers have no gaps, and follow the order of each log. Does not know which
accounts are followed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from easel.core.stream.log import Bounds
from easel.ids import AccountId


class LogType(Enum):
    RUN = "run"
    CANVAS = "canvas"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class Append:
    """The events of one log from `first_seq` to `last_seq`, without numbers yet."""

    log_type: LogType
    log_id: str
    first_seq: int
    last_seq: int

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class OrderedAppend:
    """Events with numbers: the last one has `server_seq`, the one before it the number before."""

    server_seq: int
    append: Append

    @property
    def first_server_seq(self) -> int:
        return self.server_seq - self.append.count + 1

    def after(self, server_seq: int) -> "OrderedAppend":
        """Return the part with higher numbers than this one, which must exist."""
        passed = max(0, server_seq + 1 - self.first_server_seq)
        return replace(self, append=replace(self.append, first_seq=self.append.first_seq + passed))


@dataclass(frozen=True, slots=True)
class Numbered:
    """The new bounds of the orders whose events got numbers, and whether there is more to number."""

    orders: Mapping[AccountId, Bounds]
    has_more: bool


def number_appends(appends: Sequence[Append], last_number: int) -> list[OrderedAppend]:
    """Number the events after `last_number`. Appends to one log without a gap become one, at the place of the
    first.
    """
    merged: list[Append] = []
    places: dict[tuple[LogType, str], int] = {}  # of the last append to a log
    for append in appends:
        log = append.log_type, append.log_id
        if log in places and merged[places[log]].last_seq + 1 == append.first_seq:
            merged[places[log]] = replace(merged[places[log]], last_seq=append.last_seq)
        else:
            places[log] = len(merged)
            merged.append(append)
    ordered: list[OrderedAppend] = []
    for append in merged:
        last_number += append.count
        ordered.append(OrderedAppend(last_number, append))
    return ordered


def advance(order: Bounds, newest: int, kept: int) -> Bounds:
    """Return the bounds up to `newest`: with `kept` numbers, once there are a quarter more than that."""
    is_full = newest - order.oldest >= kept * 5 // 4
    return replace(order, oldest=newest - kept + 1 if is_full else order.oldest, newest=newest)
