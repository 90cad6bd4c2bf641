"""Records of the audit trail. They are for operators and never appear in a user's stream. RS-06

Owns the table of actions and `new_entry()`, the only way to create an entry: one line of JSON with a time, an
action, an actor, a subject and at most 2 KB of details, without secrets. Has no store and no clock. The
module `chain` numbers the entries.
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
from easel.ids import AccountId


class StorageClass(StrEnum):
    """`ops`: errors and slowness of the system. `audit`: actions of principals, also refused ones. CC-06"""

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
    "canvas.restored": _AUDIT,
    "canvas.renamed": _AUDIT,
    "canvas.owner.changed": _AUDIT,
    "canvas.spec.changed": _AUDIT,
    "canvas.asset.changed": _AUDIT,
    "canvas.accepted": _AUDIT,
    "canvas.action": _AUDIT,
    "canvas.refreshed": _AUDIT,
    "canvas.confirmed": _AUDIT,
    "canvas.cancelled": _AUDIT,
    "canvas.page.refused": _AUDIT,
    "document.restored": _AUDIT,
    "document.promoted": _AUDIT,
    "document.control_taken": _AUDIT,
    "settings.changed": _AUDIT,
    "person.added": _AUDIT,
    "person.disabled": _AUDIT,
    "person.enabled": _AUDIT,
    "person.deleted": _AUDIT,
    "team.added": _AUDIT,
    "team.deleted": _AUDIT,
    "member.set": _AUDIT,
    "member.removed": _AUDIT,
    "invitation.created": _AUDIT,
    "invitation.accepted": _AUDIT,
    "password.changed": _AUDIT,
    "secret.set": _AUDIT,
    "secret.deleted": _AUDIT,
    "oauth.started": _AUDIT,
    "oauth.connected": _AUDIT,
    "oauth.refreshed": _AUDIT,
    "oauth.removed": _AUDIT,
    "oauth.failed": _AUDIT,
    "token.created": _AUDIT,
    "token.bound": _AUDIT,
    "token.revoked": _AUDIT,
    "tool.invoked": _AUDIT,
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
    "audit.shortened": _AUDIT,
}

HOST = AccountId("")  # of records that belong to no account, such as failed sign-ins
EASEL = Principal(HOST, "easel", kind=PrincipalKind.SERVICE)  # the actor if there is no request

MAX_NAME_LENGTH = 200  # characters of a subject, a name or a key
# Limits for the characters of one text, tried in this order until the details fit in 2 KB.
MAX_TEXT_LENGTHS = (1_400, 700, 350, 100)
MAX_SCANNED_LENGTH = 16_384  # characters; a longer text is cut before it is scanned for secrets
MAX_ITEMS = 50  # of one list or mapping
MAX_DEPTH = 6
MAX_PLAIN_LENGTH = 700  # characters; a longer record is cleaned and cut part by part
_METADATA = {"visibility": Visibility.SYSTEM.value}
_encode = msgspec.json.Encoder().encode

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record without its number. Only `new_entry()` creates entries.

    `rest` is the JSON of the record without the opening brace and the number. The store adds the number while
    it holds the lock of the chain.
    """

    at: datetime
    storage_class: StorageClass
    action: str
    account_id: AccountId
    rest: str

    def to_record(self, seq: int) -> str:
        """Return the record as stored and hashed. It includes its number, so moving it changes its hash."""
        return f'{{"seq":{seq},{self.rest}'


def new_entry(
    at: datetime,
    principal: Principal,
    action: str,
    *,
    redact: Redact,
    subject: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Entry:
    """Create an entry. Raises `KeyError` for an action that is not in `ACTIONS`. CC-06, CC-14"""
    storage_class = ACTIONS[action]
    actor = _actor(principal)
    record: dict[str, Any] = {
        "at": format_time(at),
        "storage_class": storage_class.value,
        "action": action,
        "actor": actor,
        **({} if subject is None else {"subject": subject}),
        **({"details": details} if details else {}),
        "metadata": _METADATA,
    }
    if (text := _to_plain_text(record, redact)) is None:
        actor |= {name: _to_line(value, redact) for name, value in actor.items()}
        if subject is not None:
            record["subject"] = _to_line(subject, redact)
        if details:
            record["details"] = limit_details(details, redact)
        text = to_json(record)
    return Entry(at, storage_class, action, AccountId(actor["account_id"]), text[1:])


def _to_plain_text(record: Mapping[str, Any], redact: Redact) -> str | None:
    """Return the JSON of a record that needs no redaction, cutting or escaping; None for other records.

    Most records need none of these. One check of the complete JSON is faster than checks of all its parts.
    """
    try:
        text = _encode(record).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # not all values can be JSON
        return None
    is_small = (
        len(text) <= MAX_PLAIN_LENGTH
        and text.count("{") + text.count("[") <= MAX_DEPTH
        and text.count(",") < MAX_ITEMS
    )
    if (
        is_small
        and "\\" not in text
        and text.isprintable()
        and MAY_BE_FORGED not in text
        and redact(text) == text
    ):
        return text
    return None


def _actor(principal: Principal) -> dict[str, Any]:
    """Return the actor of a record with its kind, unless it has not signed in, and its run. RS-68

    A program's record names the person who answers for it. RS-76
    """
    user = {} if principal.user_id is None else {"user_id": principal.user_id}
    answering = {} if principal.on_behalf_of is None else {"on_behalf_of": principal.on_behalf_of}
    is_known = principal.account_id != HOST or principal.kind is PrincipalKind.SERVICE
    kind = {"kind": principal.actor_kind.value} if is_known else {}
    run = {} if principal.run_id is None else {"run_id": principal.run_id}
    return {"account_id": principal.account_id, **user, "name": principal.name, **kind, **answering, **run}


def format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_record(record: str) -> Mapping[str, Any]:
    """Return the fields of a stored record, or `{"details": {"unreadable": True}}` if it is not JSON."""
    try:
        fields: Any = msgspec.json.decode(record)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    return (
        cast("Mapping[str, Any]", fields) if isinstance(fields, dict) else {"details": {"unreadable": True}}
    )


def limit_details(details: Mapping[str, Any], redact: Redact) -> Mapping[str, Any]:
    """Return the details without secrets and in at most 2 KB.

    Texts are cut in the middle first, so that a stack trace keeps both ends. If the details are still too
    large, values are replaced by markers, as in every event (RS-35), but with `uri` null: a record must not
    refer to artifacts, which have an owner and can be deleted.
    """
    clean, shortened = _clean_mapping(details, redact, MAX_DEPTH), dict[str, Any]()
    for max_length in MAX_TEXT_LENGTHS:
        shortened = {name: _shorten(value, max_length) for name, value in clean.items()}
        if len(to_json(shortened).encode()) <= LIMIT:
            break
    within_limit, _, offloaded = offload_event(shortened)
    return cast("Mapping[str, Any]", _without_uri(within_limit, offloaded)) if offloaded else within_limit


def _clean_mapping(value: Mapping[Any, Any], redact: Redact, depth: int) -> dict[str, Any]:
    clean: dict[str, Any] = {}
    for key, item in list(value.items())[:MAX_ITEMS]:
        name = _to_line(key, redact)
        clean[name] = HIDDEN if is_secret_name(name) and item else _clean(item, redact, depth - 1)
    return clean


def _clean(value: Any, redact: Redact, depth: int) -> Any:
    """Return the value as JSON without secrets.

    Texts are not shortened yet: a secret that was cut in half would not be recognised.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else hex(value)
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return _clean_mapping(cast("Mapping[Any, Any]", value), redact, depth)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item, redact, depth - 1) for item in list(cast("list[Any]", value))[:MAX_ITEMS]]
    return redact(_cut(value if isinstance(value, str) else str(value), MAX_SCANNED_LENGTH))


def _shorten(value: Any, max_length: int) -> Any:
    if isinstance(value, str):
        return _escape(_cut(value, max_length))
    if isinstance(value, dict):
        return {name: _shorten(item, max_length) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_shorten(item, max_length) for item in cast("list[Any]", value)]
    return value


def _to_line(value: object, redact: Redact) -> str:
    return _escape(_cut(redact(_cut(str(value), MAX_SCANNED_LENGTH)), MAX_NAME_LENGTH))


def _cut(text: str, max_length: int) -> str:
    """Cut the middle of a long text: a stack trace begins with the entry point and ends with the error."""
    if len(text) <= max_length:
        return text
    start = max_length // 3
    return f"{text[:start]}… [{len(text) - max_length} characters cut] …{text[start - max_length :]}"


def _escape(text: str) -> str:
    """Escape characters that could control a terminal. Line ends and tabs are left for JSON to escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def _without_uri(value: Any, offloaded: tuple[OffloadedValue, ...]) -> Any:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        digests = {item.artifact_id.removeprefix("art_") for item in offloaded}
        if fields.get("redacted") is True and fields.get("sha256") in digests:
            return {**fields, "uri": None}
        return {key: _without_uri(item, offloaded) for key, item in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_without_uri(item, offloaded) for item in cast("list[Any]", value)]
    return value
