"""Audit records and their chain: content, redaction, size, and detection of every change."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.audit.chain import (
    START,
    Break,
    ChainEnd,
    ChainPosition,
    Link,
    check_end,
    follow,
    link_entries,
    link_hash,
    parse_position,
)
from easel.core.audit.record import (
    ACTIONS,
    EASEL,
    MAX_NAME_LENGTH,
    Entry,
    StorageClass,
    new_entry,
    parse_record,
)
from easel.core.audit.redaction import HIDDEN, Redaction, is_secret_name
from easel.core.stream.envelope import EVENT_TYPES, Stream
from easel.core.stream.payload_limit import LIMIT
from easel.errors import BadInput
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from easel.core.principal import Principal

AT = datetime(2026, 11, 15, 9, 8, 39, 60, tzinfo=UTC)
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "audit.md"
redact = Redaction()


def build_entry(
    action: str = "session.renamed", *, principal: Principal = THE_OWNER, at: datetime = AT, **more: Any
) -> Entry:
    return new_entry(at, principal, action, redact=redact, **more)


def record_of(entry: Entry, seq: int = 1) -> dict[str, Any]:
    return json.loads(entry.to_record(seq))


def details_of(details: Mapping[str, Any]) -> dict[str, Any]:
    return record_of(build_entry(details=details))["details"]


# --- content ------------------------------------------------------------------------------------------------


@rule("CC-14", "CC-15", "CC-10")
@pytest.mark.parametrize("action", ACTIONS)
def test_every_record_has_its_actor_action_and_system_visibility(action: str) -> None:
    record = record_of(build_entry(action, subject="run_1", details={"reason": "because"}), 7)
    assert record == {
        "seq": 7,
        "at": "2026-11-15T09:08:39.000060Z",
        "storage_class": ACTIONS[action].value,
        "action": action,
        "actor": {"account_id": "owner", "user_id": "owner", "name": "owner", "kind": "person"},
        "subject": "run_1",
        "details": {"reason": "because"},
        "metadata": {"visibility": "system"},
    }


def test_record_has_a_fixed_field_order_and_no_whitespace() -> None:
    text = build_entry("sign_out").to_record(1)
    assert text == (
        '{"seq":1,"at":"2026-11-15T09:08:39.000060Z","storage_class":"audit","action":"sign_out",'
        '"actor":{"account_id":"owner","user_id":"owner","name":"owner","kind":"person"},'
        '"metadata":{"visibility":"system"}}'
    )


def test_time_is_written_in_utc() -> None:
    in_tokyo = AT.astimezone(timezone(timedelta(hours=9)))
    assert record_of(build_entry(at=in_tokyo))["at"] == "2026-11-15T09:08:39.000060Z"


def test_unknown_action_cannot_be_recorded() -> None:
    with pytest.raises(KeyError):
        build_entry("session.danced")


@rule("RS-06", "CC-13", "CC-02")
def test_no_event_type_belongs_to_the_system_stream() -> None:
    """Audit records have no event type, so they cannot be put into the log of a run, a thread or a canvas."""
    assert [
        kind.name
        for kind in EVENT_TYPES.values()
        if kind.stream is Stream.SYSTEM or kind.visibility.value == "system"
    ] == []
    assert {
        "http.error",
        "tool.error",
        "run.error",
        "guardrail.refused",
        "http.slow",
        "database.unavailable",
    } <= set(ACTIONS) - set(EVENT_TYPES)


@rule("CC-06")
def test_both_storage_classes_are_used() -> None:
    assert {storage_class.value for storage_class in StorageClass} == {"ops", "audit"}
    assert set(ACTIONS.values()) == set(StorageClass)


def test_guide_lists_exactly_the_actions() -> None:
    rows = [
        line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    listed = {row[1].strip().strip("`"): row[2].strip() for row in rows if row[2].strip() in ("ops", "audit")}
    assert listed == {action: storage_class.value for action, storage_class in ACTIONS.items()}


# --- redaction ----------------------------------------------------------------------------------------------

KEY = "sk-proj-4b8Xq1ZzYt7LmN2w"
COOKIE = f"sign_{0:026}." + "0a1b2c3d" * 8
SECRETS = [
    # text                                                                what must be redacted
    (f"openai said 401 for {KEY}", KEY),
    ("anthropic: sk-ant-api03-AbCdEf012345", "AbCdEf012345"),
    ("google AIzaSyA-1234567890abcdefgh", "AIzaSyA"),
    ("github ghp_abcdefghijklmnopqrst012345", "ghp_abc"),
    ("aws AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("slack xoxb-1234-abcdefgh", "1234-abcdefgh"),
    ("Authorization: Bearer abc.def-123", "abc.def-123"),
    ("authorization=Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
    ("{'Authorization': 'Bearer x y z'}", "x y z"),
    ("[(b'host', b'h'), (b'authorization', b'Bearer nobodys-business')]", "nobodys-business"),
    ("[(b'x-api-key', b'plain word')]", "plain word"),
    ("GET /?token=plainword&page=2", "plainword"),
    ("ws://h/ahp?tkn=plainword", "plainword"),
    ("api_key=plainword", "plainword"),
    ('{"apiKey": "plain, with a comma"}', "plain, with a comma"),
    ('{\\"api_key\\": \\"escaped once\\"}', "escaped once"),
    ("password: hunter2", "hunter2"),
    ("PASSWORD=a,b;c)d", "a,b;c)d"),
    ("client_secret='two words'", "two words"),
    ("postgresql://easel:hunter2@db:5432/easel", "hunter2"),
    (f"Cookie: other=1; easel={COOKIE}", COOKIE),
    (f"cookies were {COOKIE} and more", COOKIE.partition(".")[2]),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIiOiIxIn0"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY----- after", "MIIEow"),
    ("-----BEGIN PRIVATE KEY-----\ncut off here MIIEow", "MIIEow"),
]


@case("P6")
@pytest.mark.parametrize("text, secret", SECRETS, ids=[text[:24] for text, _ in SECRETS])
def test_secret_is_redacted_and_the_rest_stays(text: str, secret: str) -> None:
    hidden = redact(text)
    assert secret not in hidden
    assert HIDDEN in hidden
    assert redact(hidden) == hidden
    assert text[:3] == hidden[:3] or hidden.startswith(HIDDEN)


@case("P6")
@pytest.mark.parametrize(
    "prefix",
    [
        "sk",
        "pk",
        "rk",
        "gsk",
        "whsec",
        "ghp",
        "gho",
        "ghu",
        "ghs",
        "ghr",
        "github_pat",
        "npm",
        "hf",
        "glpat",
        "xoxb",
        "xapp",
    ],
)
@pytest.mark.parametrize("dash", "-_")
def test_every_form_of_key_is_redacted_despite_the_prefilter(prefix: str, dash: str) -> None:
    assert redact(f"it was {prefix}{dash}A1b2C3d4E5f6") == f"it was {HIDDEN}"


HARMLESS = [
    "The digest is " + hashlib.sha256(b"x").hexdigest(),
    "max_tokens=500, token_count: 7, 3 tokens left",
    "run_06f8xk2m9c3p1q0r8s7t6v5w4y ended as failed",
    "a risk-averse bearer of the news, basically",
    "ask-me-anything and desk-lamps",
    "the secret of success; a password manager",
    "http://127.0.0.1:8800/api/runs?session_id=main",
    'File "src/easel/host/auth/sign_in.py", line 20, in authenticate_token',
    "2026-11-15T09:08:39.000060Z",
    "1796284800.5 seconds",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_not_redacted(text: str) -> None:
    assert redact(text) == text


@case("P6")
def test_known_secret_is_redacted_whatever_it_looks_like() -> None:
    redact_known = Redaction(["correct horse battery", "pass/w@rd!"])
    assert redact_known("it was correct horse battery staple") == f"it was {HIDDEN} staple"
    assert redact_known("?x=pass%2Fw%40rd%21") == f"?x={HIDDEN}"
    assert Redaction(["a"])("banana") == "banana", "a secret this short would redact ordinary words"


NAMES = [
    ("api_key", True),
    ("X-Api-Key", True),
    ("apiKey", True),
    ("password", True),
    ("owner_token", True),
    ("Set-Cookie", True),
]
NAMES += [
    ("client_secret", True),
    ("max_tokens", False),
    ("token_count", False),
    ("keyboard", False),
    ("path", False),
    ("secretary", False),
]


@case("P6")
@pytest.mark.parametrize("name, is_secret", NAMES)
def test_value_of_a_field_with_a_secret_name_is_redacted(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret
    assert details_of({"inside": [{name: "just a word"}]}) == {
        "inside": [{name: HIDDEN if is_secret else "just a word"}]
    }


@case("P6")
def test_secret_is_redacted_in_every_part_of_a_record() -> None:
    principal = person(f"user {KEY}", f"name {KEY}")
    made = build_entry(
        principal=principal,
        subject=f"subject {KEY}",
        details={f"key {KEY}": 1, "list": [f"x {KEY}", {"deep": (f"y {KEY}",)}]},
    )
    assert KEY not in made.rest
    assert KEY not in made.account_id
    assert made.rest.count(HIDDEN) == 7


@case("P6")
@pytest.mark.parametrize("padding", [0, 460, 1_390, 5_000, 16_000, 500_000])
def test_cutting_a_text_leaves_no_part_of_a_secret(padding: int) -> None:
    text = "x" * padding + f" key {KEY} " + "y" * padding
    for part in (KEY, KEY[:12], KEY[-12:]):
        assert part not in build_entry(details={"message": text}, subject=text).rest


# --- size and escaping --------------------------------------------------------------------------------------


def size(made: Entry) -> int:
    return len(json.dumps(record_of(made)["details"], ensure_ascii=False, separators=(",", ":")).encode())


@rule("CC-23", "CC-26")
def test_long_stack_trace_keeps_both_ends() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        + '  File "x.py", line 1, in f\n' * 5_000
        + "RuntimeError: the end of it"
    )
    made = build_entry(
        "run.error",
        details={
            "reference": "ref_1",
            "exception": "RuntimeError",
            "message": "m" * 50_000,
            "traceback": trace,
        },
    )
    details = record_of(made)["details"]
    assert size(made) <= LIMIT
    assert (details["reference"], details["exception"]) == ("ref_1", "RuntimeError")
    assert details["traceback"].startswith("Traceback (most")
    assert details["traceback"].endswith("the end of it")
    assert "characters cut" in details["traceback"]


@rule("CC-23", "CC-26")
@given(
    st.dictionaries(
        st.text(max_size=30),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.binary()
            | st.builds(object),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=8,
        ),
    ),
    st.sampled_from([0, 600, 5_000]),
)
@settings(max_examples=60)
def test_record_of_any_details_is_small_and_one_line(details: dict[str, Any], repetitions: int) -> None:
    details = {**details, "long": "QUJD" * repetitions, "much": ["text"] * repetitions}
    made = build_entry(subject=str(details), details=details)
    text = made.to_record(2**63 - 1)
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert json.loads(text)["seq"] == 2**63 - 1
    assert len(text.encode()) < 3 * LIMIT


@rule("CC-26")
def test_details_that_are_too_large_after_cutting_become_a_marker_without_uri() -> None:
    """Fifty texts of a hundred characters each. Nothing is stored beside a record, so there is no `uri`."""
    made = build_entry(details={"notes": [f"{nth} " + "word " * 40 for nth in range(50)]})
    assert size(made) <= LIMIT
    assert '"redacted":true' in made.rest
    assert '"uri":null' in made.rest


HOSTILE = [
    "a\r\nb",
    "\x1b[31mred\x1b[0m",
    "\x9b31m",
    "line\u2028para\u2029",
    "\x00\x07\x08\x7f\x85",
    "\ud800",
    "\u202etxt.exe",
    "\ufeff",
]


@case("R6")
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_control_characters_are_escaped(text: str) -> None:
    made = build_entry(principal=person(text, text), subject=text, details={text: text, "more": [text]})
    assert made.rest.isprintable()
    assert record_of(made)["subject"].isascii(), "escaped, not dropped"


@case("R6")
def test_title_of_a_megabyte_is_cut() -> None:
    made = build_entry(subject="t" * 1_000_000, details={"title": "\r\n" * 500_000})
    assert len(made.rest) < 3 * LIMIT
    assert len(record_of(made)["subject"]) < MAX_NAME_LENGTH + 50


# --- the chain ----------------------------------------------------------------------------------------------


def new_chain(count: int = 6) -> list[Link]:
    return link_entries(
        START, [build_entry(at=AT + timedelta(seconds=nth), subject=f"s{nth}") for nth in range(count)]
    )


def end_of(links: list[Link]) -> ChainEnd:
    return ChainEnd(ChainPosition(links[-1].seq, links[-1].hash), links[-1].seq)


def verify(links: list[Link], end: ChainEnd) -> ChainPosition | Break:
    position = follow(START, links)
    return position if isinstance(position, Break) else check_end(position, end) or position


@rule("CC-06")
def test_hash_covers_the_previous_hash_and_the_record() -> None:
    first, second = new_chain(2)
    assert first.hash == hashlib.sha256(b"\n" + first.record.encode()).hexdigest()
    assert second.hash == hashlib.sha256(first.hash.encode() + b"\n" + second.record.encode()).hexdigest()
    assert [parse_record(link.record)["seq"] for link in (first, second)] == [1, 2]


@rule("CC-06")
def test_chain_is_verified_in_pages_of_any_size() -> None:
    links = new_chain(7)
    assert verify(links, end_of(links)) == ChainPosition(7, links[-1].hash)
    for cut in range(8):
        half = follow(START, links[:cut])
        assert isinstance(half, ChainPosition)
        assert follow(half, links[cut:]) == ChainPosition(7, links[-1].hash)
    assert follow(START, []) == START
    assert check_end(START, ChainEnd(START, 0)) is None


def rehash(links: list[Link], start: int) -> list[Link]:
    """Recompute every hash from here on, as a forger would who knows the algorithm."""
    position = START if start == 0 else ChainPosition(links[start - 1].seq, links[start - 1].hash)
    fresh = list(links)
    for nth in range(start, len(links)):
        fresh[nth] = replace(links[nth], hash=link_hash(position.hash, links[nth].record))
        position = ChainPosition(fresh[nth].seq, fresh[nth].hash)
    return fresh


def edit_record(links: list[Link], nth: int) -> list[Link]:
    return [
        replace(link, record=link.record.replace('"subject":"s', '"subject":"S')) if at == nth else link
        for at, link in enumerate(links)
    ]


def remove_and_renumber(links: list[Link], nth: int) -> list[Link]:
    """Remove a record and renumber those after it, in their columns and in their texts."""
    left = [link for link in links if link.seq != nth + 1]
    renumbered = [
        replace(link, seq=at, record=link.record.replace(f'"seq":{link.seq},', f'"seq":{at},'))
        for at, link in enumerate(left, 1)
    ]
    return rehash(renumbered, nth)


def change(links: list[Link], nth: int, **columns: Any) -> list[Link]:
    return [*links[:nth], replace(links[nth], **columns), *links[nth + 1 :]]


TAMPERINGS: list[tuple[str, Callable[[list[Link]], list[Link]], int]] = [
    # name, how, where it is found
    ("record edited", lambda links: edit_record(links, 2), 3),
    ("first record edited", lambda links: edit_record(links, 0), 1),
    ("record and its hash edited", lambda links: rehash(edit_record(links, 2), 2)[:3] + links[3:], 4),
    ("record and all later hashes edited", lambda links: rehash(edit_record(links, 2), 2), 6),
    ("last record and its hash edited", lambda links: rehash(edit_record(links, 5), 5), 6),
    ("record removed", lambda links: links[:2] + links[3:], 3),
    ("first record removed", lambda links: links[1:], 1),
    ("record removed and the rest renumbered", lambda links: remove_and_renumber(links, 2), 6),
    ("end cut off", lambda links: links[:4], 5),
    ("everything cut off", lambda _: [], 1),
    (
        "two texts swapped",
        lambda links: change(change(links, 1, record=links[2].record), 2, record=links[1].record),
        2,
    ),
    (
        "two records swapped",
        lambda links: [links[0], replace(links[2], seq=2), replace(links[1], seq=3), *links[3:]],
        2,
    ),
    ("record inserted before the first", lambda links: [replace(links[0], seq=0), *links], 0),
    ("record appended", lambda _: new_chain(7), 7),
    ("text that is not a record", lambda links: change(links, 0, record="[]", hash=link_hash("", "[]")), 1),
    ("user changed", lambda links: change(links, 1, account_id="mallory"), 2),
    ("time changed", lambda links: change(links, 1, at=AT + timedelta(microseconds=1)), 2),
    ("action changed", lambda links: change(links, 1, action="session.created"), 2),
    ("storage class changed", lambda links: change(links, 1, storage_class="ops"), 2),
]


@rule("CC-06")
@pytest.mark.parametrize("name, tamper, found_at", TAMPERINGS, ids=[row[0] for row in TAMPERINGS])
def test_tampering_with_records_is_detected(
    name: str, tamper: Callable[[list[Link]], list[Link]], found_at: int
) -> None:
    links = new_chain()
    tampered = tamper(links)
    end = end_of(links)
    found = verify(tampered, replace(end, newest=max((link.seq for link in tampered), default=0)))
    assert isinstance(found, Break)
    assert found.seq == found_at
    assert found.problem


@rule("CC-06")
@pytest.mark.parametrize(
    "head, found_at",
    [
        (None, 7),
        (ChainPosition(5, "x" * 64), 6),
        (ChainPosition(6, "x" * 64), 6),
        (ChainPosition(7, "x" * 64), 7),
        (START, 1),
    ],
    ids=["missing", "moved back", "another hash", "moved on", "emptied"],
)
def test_tampering_with_the_head_is_detected(head: ChainPosition | None, found_at: int) -> None:
    links = new_chain()
    found = verify(links, ChainEnd(head, 6))
    assert isinstance(found, Break)
    assert found.seq == found_at


@rule("CC-06")
@given(st.data())
def test_change_of_any_character_of_a_record_is_detected(data: st.DataObject) -> None:
    links = new_chain(4)
    nth = data.draw(st.integers(0, 3))
    text = links[nth].record
    at = data.draw(st.integers(0, len(text) - 1))
    char = data.draw(st.characters(exclude_categories=["Cs"]).filter(lambda char: char != text[at]))
    changed = replace(links[nth], record=text[:at] + char + text[at + 1 :])
    found = follow(START, [*links[:nth], changed, *links[nth + 1 :]])
    assert isinstance(found, Break)
    assert found.seq == nth + 1


def test_position_is_parsed_as_it_was_printed() -> None:
    position = ChainPosition(12, "ab" * 32)
    assert parse_position(f" {position}\n") == position
    for wrong in ("", "12", "12:xy", "0:" + "ab" * 32, f"-1:{'ab' * 32}", f"12:{'AB' * 32}"):
        with pytest.raises(BadInput):
            parse_position(wrong)


def test_unreadable_record_is_parsed_as_unreadable() -> None:
    for text in ("", "{", "[1]", "null", "{" * 100_000, '"text"'):
        assert parse_record(text) == {"details": {"unreadable": True}}
    assert parse_record(build_entry(principal=EASEL).to_record(1))["actor"] == {
        "account_id": "",
        "name": "easel",
        "kind": "service",
    }
