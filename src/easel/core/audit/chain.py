"""The audit chain: each record's hash covers the one before it, so that no edit, removal or reordering goes unseen. CC-06

Owns how a record is linked to the one before, and what a break is. Pure: links in, a place or a break out. Who can
rewrite the whole chain and its head can forge it; a `Place` that was noted elsewhere finds that out too.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from easel.core.audit.record import Entry, said, written
from easel.errors import BadInput

_KNOWN = re.compile(r"([1-9][0-9]{0,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """How far the chain goes, or was followed: the number and the hash of a record."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


START = ChainPosition(0, "")


@dataclass(frozen=True, slots=True)
class Link:
    """A record as it lies in the store: the text that was hashed, and the columns that are searched."""

    seq: int
    user_id: str
    at: datetime
    storage_class: str
    action: str
    record: str
    hash: str


@dataclass(frozen=True, slots=True)
class End:
    """What the store says of its end, in one look: the head, if there is one, and the highest number of any record."""

    head: ChainPosition | None
    newest: int


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where the chain is not what was written."""

    seq: int
    problem: str


def link_hash(previous: str, record: str) -> str:
    return hashlib.sha256(f"{previous}\n{record}".encode()).hexdigest()


def chained(place: ChainPosition, entries: Iterable[Entry]) -> list[Link]:
    """The entries behind this place, in their order."""
    links: list[Link] = []
    for one in entries:
        record = one.at_place(place.seq + 1)
        place = ChainPosition(place.seq + 1, link_hash(place.hash, record))
        links.append(
            Link(place.seq, one.user_id, one.at, one.storage_class.value, one.action, record, place.hash)
        )
    return links


def follow(place: ChainPosition, links: Sequence[Link]) -> ChainPosition | Break:
    """As far as these links lead on from here; the first that does not is a break."""
    for link in links:
        expected = place.seq + 1
        if link.seq > expected:
            return Break(expected, f"Record {expected} is missing; the next one there is {link.seq}.")
        if link.seq < expected:
            return Break(link.seq, f"Record {link.seq} was never written.")
        if link_hash(place.hash, link.record) != link.hash:
            return Break(
                link.seq,
                f"Record {link.seq} or the one before it was altered: its hash is not that of what is written.",
            )
        if column := _lying_column(link):
            return Break(
                link.seq,
                f"Record {link.seq} was altered: its column {column} does not say what the record says.",
            )
        place = ChainPosition(link.seq, link.hash)
    return place


def check_end(place: ChainPosition, end: End) -> Break | None:
    """A chain whose last records were cut off is sound by itself: only its head knows how long it was."""
    if end.head is None:
        return Break(
            place.seq + 1, "The head of the chain is missing, so nothing says where the chain should end."
        )
    if end.head.seq < end.newest:
        return Break(
            end.head.seq + 1,
            f"The head says that the chain ends with {end.head.seq}, and there are records up to {end.newest}.",
        )
    if place.seq < end.head.seq:
        return Break(
            place.seq + 1,
            f"Record {place.seq + 1} is missing: the head says that the chain goes on to {end.head.seq}.",
        )
    if place.hash != end.head.hash:
        return Break(place.seq, f"Record {place.seq} is not the one that the head speaks of.")
    return None


def parse_position(text: str) -> ChainPosition:
    """`SEQ:HASH`, as `easel audit verify` prints it."""
    if found := _KNOWN.fullmatch(text.strip()):
        return ChainPosition(int(found[1]), found[2])
    raise BadInput(problem="A known place is SEQ:HASH, as an earlier `easel audit verify` printed it.")


def _lying_column(link: Link) -> str | None:
    """Only the text is hashed; what the listing is searched by has to agree with it."""
    fields = said(link.record)
    actor: Any = fields.get("actor")
    says: dict[str, tuple[object, object]] = {
        "seq": (link.seq, fields.get("seq")),
        "user_id": (
            link.user_id,
            cast("dict[str, object]", actor).get("user_id") if isinstance(actor, dict) else None,
        ),
        "at": (written(link.at), fields.get("at")),
        "storage_class": (link.storage_class, fields.get("storage_class")),
        "action": (link.action, fields.get("action")),
    }
    return next((column for column, (stored, written_) in says.items() if stored != written_), None)
