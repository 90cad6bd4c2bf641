"""The audit chain: the hash of each record covers the record before it, so that changes are detected. CC-06

Owns linking and verifying records, and the signed checkpoint at which the chain begins after old records were
removed. Has no store. An attacker who can rewrite all records and the head can forge a valid chain. Comparing
it with a `ChainPosition` that was noted outside the database detects this too.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, cast

from easel.core.audit.record import Entry, format_time, parse_record
from easel.errors import BadInput

_POSITION = re.compile(r"([1-9][0-9]{0,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """The number and the hash of a record: the end of the chain, or the last record that was verified."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


START = ChainPosition(0, "")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of the last removed record, signed: the chain begins after it. RS-69"""

    position: ChainPosition
    signature: str

    @classmethod
    def sign(cls, position: ChainPosition, key: str) -> "Checkpoint":
        return cls(position, _signature(position, key))

    def is_signed_with(self, key: str) -> bool:
        return hmac.compare_digest(self.signature, _signature(self.position, key))


def _signature(position: ChainPosition, key: str) -> str:
    return hmac.new(key.encode(), f"easel audit checkpoint {position}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Link:
    """A record as it is stored: the hashed text `record`, its `hash`, and columns for searching."""

    seq: int
    account_id: str
    at: datetime
    storage_class: str
    action: str
    record: str
    hash: str


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The stored head of the chain, None if it is missing, and the number of the newest record."""

    head: ChainPosition | None
    newest: int


@dataclass(frozen=True, slots=True)
class Break:
    """The first record that is missing, was added or was altered, and a message for the operator."""

    seq: int
    problem: str


def link_hash(previous: str, record: str) -> str:
    return hashlib.sha256(f"{previous}\n{record}".encode()).hexdigest()


def link_entries(position: ChainPosition, entries: Iterable[Entry]) -> list[Link]:
    """Return the entries as links that continue the chain after this position."""
    links: list[Link] = []
    for entry in entries:
        record = entry.to_record(position.seq + 1)
        position = ChainPosition(position.seq + 1, link_hash(position.hash, record))
        storage_class = entry.storage_class.value
        links.append(
            Link(position.seq, entry.account_id, entry.at, storage_class, entry.action, record, position.hash)
        )
    return links


def follow(position: ChainPosition, links: Sequence[Link]) -> ChainPosition | Break:
    """Verify links that follow a position. Returns the position of the last link, or the first break."""
    for link in links:
        expected = position.seq + 1
        if link.seq > expected:
            return Break(expected, f"Record {expected} is missing; the next one is {link.seq}.")
        if link.seq < expected:
            return Break(link.seq, f"Record {link.seq} was never written.")
        if link_hash(position.hash, link.record) != link.hash:
            return Break(
                link.seq, f"Record {link.seq} or the one before it was altered: its hash does not match."
            )
        if column := _mismatching_column(link):
            return Break(
                link.seq, f"Record {link.seq} was altered: its column {column} does not match the record."
            )
        position = ChainPosition(link.seq, link.hash)
    return position


def find_cut(position: ChainPosition, links: Sequence[Link], before: datetime) -> ChainPosition | Break:
    """Return the position of the last link of the prefix that is older than `before`. RS-69

    It is `position` if the first link is not older. Returns the break of a prefix that is not intact, which
    must be kept as evidence.
    """
    prefix = list(takewhile(lambda link: link.at < before, links))
    return follow(position, prefix)


def check_end(position: ChainPosition, end: ChainEnd) -> Break | None:
    """Compare the last position with the head, which detects missing records at the end of the chain."""
    if end.head is None:
        return Break(position.seq + 1, "The head of the chain is missing, so its expected length is unknown.")
    if end.head.seq < end.newest:
        return Break(
            end.head.seq + 1,
            f"The chain should end with record {end.head.seq}, but there are records up to {end.newest}.",
        )
    if position.seq < end.head.seq:
        return Break(
            position.seq + 1,
            f"Record {position.seq + 1} is missing: the chain should end with record {end.head.seq}.",
        )
    if position.hash != end.head.hash:
        return Break(position.seq, f"Record {position.seq} does not match the head of the chain.")
    return None


def parse_position(text: str) -> ChainPosition:
    """Parse `SEQ:HASH`, as `easel audit verify` prints it."""
    if found := _POSITION.fullmatch(text.strip()):
        return ChainPosition(int(found[1]), found[2])
    raise BadInput(problem="A checkpoint must be SEQ:HASH, as an earlier `easel audit verify` printed it.")


def _mismatching_column(link: Link) -> str | None:
    """Return the first column that differs from the record. Columns need a check: they are not hashed."""
    fields = parse_record(link.record)
    actor: Any = fields.get("actor")
    account_id = cast("dict[str, object]", actor).get("account_id") if isinstance(actor, dict) else None
    expected = {**fields, "account_id": account_id}
    columns = {
        "seq": link.seq,
        "account_id": link.account_id,
        "at": format_time(link.at),
        "storage_class": link.storage_class,
        "action": link.action,
    }
    return next((column for column, stored in columns.items() if stored != expected.get(column)), None)
