"""A record of the system stream: what is told to those who run Easel, and never to a user's stream. RS-06

Owns the table of actions and `entry()`, the one maker of entries: each says when, what, who and about what, has no secret
in it, is light, and is one line of JSON. Knows no store and no clock; its place in the chain is `chain`'s business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

import msgspec

from easel.core.audit.redaction import HIDDEN, is_secret_name
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.envelope import Visibility
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import MAY_BE_FORGED
from easel.core.stream.payload_limit import LIMIT, OffloadedValue, offload_event
from easel.ids import UserId


class StorageClass(StrEnum):
    """`ops`: how the machine fares. `audit`: who did, or was refused, what. CC-06"""

    OPS = "ops"
    AUDIT = "audit"


_OPS, _AUDIT = StorageClass.OPS, StorageClass.AUDIT

ACTIONS: Mapping[str, StorageClass] = {
    "sign_in.succeeded": _AUDIT,
    "sign_in.failed": _AUDIT,
    "sign_out": _AUDIT,
    "session.created": _AUDIT,
    "session.renamed": _AUDIT,
    "session.deleted": _AUDIT,
    "run.cancelled": _AUDIT,
    "canvas.created": _AUDIT,
    "canvas.deleted": _AUDIT,
    "canvas.accepted": _AUDIT,
    "canvas.action": _AUDIT,
    "canvas.confirmed": _AUDIT,
    "canvas.cancelled": _AUDIT,
    "canvas.page.refused": _AUDIT,
    "token.created": _AUDIT,
    "token.revoked": _AUDIT,
    "node.connected": _AUDIT,
    "node.disconnected": _AUDIT,
    "artifact.uploaded": _AUDIT,
    "board.refused": _AUDIT,
    "guardrail.refused": _AUDIT,
    "sandbox.ran": _AUDIT,
    "sandbox.violation": _AUDIT,
    "run.failed": _OPS,
    "run.error": _OPS,
    "tool.error": _OPS,
    "worker.error": _OPS,
    "http.error": _OPS,
    "chat.error": _OPS,
    "gateway.error": _OPS,
    "http.slow": _OPS,
    "append.slow": _OPS,
    "database.unavailable": _OPS,
    "audit.overflowed": _OPS,
}

EASEL = Principal(UserId("easel"), "easel", kind=PrincipalKind.SERVICE)  # what the host does by itself

MAX_NAME_LENGTH = 200  # characters of a subject, of a name and of a key
MAX_TEXT_LENGTHS = (
    1_400,
    700,
    350,
    100,
)  # characters of one text: the first length with which the details are light enough
MAX_READ_BYTES = (
    16_384  # characters of one text that are looked at for secrets; the middle of a longer one is cut before
)
MAX_ITEMS = 50  # of one list or mapping
MAX_DEPTH = 6

MAX_PLAIN_LENGTH = 700  # characters of a record that is taken as it is: so that no text in it has to be cut
_METADATA = {"visibility": Visibility.SYSTEM.value}
_encode = msgspec.json.Encoder().encode

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be recorded, all but its place. Only `entry()` makes one.

    `rest` is the record's JSON behind its number, so that a store can put the number in under the chain's lock.
    """

    at: datetime
    storage_class: StorageClass
    action: str
    user_id: UserId
    rest: str

    def at_place(self, seq: int) -> str:
        """The record as it is stored and hashed. The number is inside, so that no record can change its place unseen."""
        return f'{{"seq":{seq},{self.rest}'


def entry(
    at: datetime,
    principal: Principal,
    action: str,
    *,
    redact: Redact,
    subject: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Entry:
    """The storage class comes from the table; an action that is not in it is a mistake of ours. CC-06, CC-14"""
    storage_class = ACTIONS[action]
    if (plain := _plain(at, principal, action, subject=subject, details=details, redact=redact)) is not None:
        return Entry(at, storage_class, action, principal.user_id, plain)
    record: dict[str, Any] = {
        "at": written(at),
        "storage_class": storage_class.value,
        "action": action,
        "actor": {"user_id": _line(principal.user_id, redact), "name": _line(principal.name, redact)},
    }
    if subject is not None:
        record["subject"] = _line(subject, redact)
    if details:
        record["details"] = light(details, redact)
    record["metadata"] = _METADATA
    return Entry(at, storage_class, action, UserId(record["actor"]["user_id"]), to_json(record)[1:])


def _plain(
    at: datetime,
    principal: Principal,
    action: str,
    *,
    subject: str | None,
    details: Mapping[str, Any] | None,
    redact: Redact,
) -> str | None:
    """The record of most: short, with nothing to hide, to cut or to escape. One look at the whole text tells, and saves one at each part."""
    record: dict[str, Any] = {
        "at": written(at),
        "storage_class": ACTIONS[action].value,
        "action": action,
        "actor": {"user_id": principal.user_id, "name": principal.name},
        **({} if subject is None else {"subject": subject}),
        **({"details": details} if details else {}),
        "metadata": _METADATA,
    }
    try:
        text = _encode(record).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # something that is not JSON by itself
        return None
    are_short = all(
        len(name) <= MAX_NAME_LENGTH
        for name in (principal.user_id, principal.name, subject or "", *(details or ()))
    )
    is_small = (
        are_short
        and len(text) <= MAX_PLAIN_LENGTH
        and text.count("{") + text.count("[") <= MAX_DEPTH
        and text.count(",") < MAX_ITEMS
    )
    if (
        not is_small
        or "\\" in text
        or not text.isprintable()
        or MAY_BE_FORGED in text
        or redact(text) != text
    ):
        return None
    return text[1:]


def written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def said(record: str) -> Mapping[str, Any]:
    """A stored record's fields; of a text that somebody has spoilt, that it is so."""
    try:
        fields: Any = msgspec.json.decode(record)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    return (
        cast("Mapping[str, Any]", fields) if isinstance(fields, dict) else {"details": {"unreadable": True}}
    )


def light(details: Mapping[str, Any], redact: Redact) -> Mapping[str, Any]:
    """Without secrets and at most 2 KB: texts are cut in the middle first, so that a stack trace keeps its two ends.

    What is too heavy even so becomes its marker, by the law that holds for every event (RS-35). A record's marker has no
    `uri`: what operators read refers to nothing that has an owner, can be swept away, or would have to be kept for it.
    """
    clean, tidy = _mapping(details, redact, MAX_DEPTH), dict[str, Any]()
    for longest in MAX_TEXT_LENGTHS:
        tidy = {name: _shortened(value, longest) for name, value in clean.items()}
        if len(to_json(tidy).encode()) <= LIMIT:
            break
    lighter, _, offloaded = offload_event(tidy)
    return cast("Mapping[str, Any]", _without_uri(lighter, offloaded)) if offloaded else lighter


def _mapping(value: Mapping[Any, Any], redact: Redact, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in list(value.items())[:MAX_ITEMS]:
        name = _line(key, redact)
        kept[name] = HIDDEN if is_secret_name(name) and item else _clean(item, redact, depth - 1)
    return kept


def _clean(value: Any, redact: Redact, depth: int) -> Any:
    """Without secrets, as JSON has it, and not yet cut: half a secret is not recognised."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else hex(value)
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value), redact, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item, redact, depth - 1) for item in list(cast("list[Any]", value))[:MAX_ITEMS]]
    return redact(_cut(value if isinstance(value, str) else str(value), MAX_READ_BYTES))


def _shortened(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return _escaped(_cut(value, longest))
    if isinstance(value, dict):
        return {name: _shortened(item, longest) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shortened(item, longest) for item in cast("list[Any]", value)]
    return value


def _line(value: object, redact: Redact) -> str:
    return _escaped(_cut(redact(_cut(str(value), MAX_READ_BYTES)), MAX_NAME_LENGTH))


def _cut(text: str, longest: int) -> str:
    """Both ends: a stack trace begins with where it started and ends with what happened."""
    if len(text) <= longest:
        return text
    start = longest // 3
    return f"{text[:start]}… [{len(text) - longest} characters cut] …{text[start - longest :]}"


def _escaped(text: str) -> str:
    """What would begin another line, colour a terminal or reverse its writing is shown by its number; JSON does the rest."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def _without_uri(value: Any, offloaded: tuple[OffloadedValue, ...]) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        digests = {one.artifact_id.removeprefix("art_") for one in offloaded}
        if fields.get("redacted") is True and fields.get("sha256") in digests:
            return {**fields, "uri": None}
        return {key: _without_uri(item, offloaded) for key, item in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_without_uri(item, offloaded) for item in cast("list[Any]", value)]
    return value
