"""Records and their chain: what a record says, what it never says, and that no change of what is stored goes unseen."""

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
    ChainPosition,
    End,
    Link,
    chained,
    check_end,
    follow,
    link_hash,
    parse_position,
)
from easel.core.audit.record import ACTIONS, EASEL, MAX_NAME_LENGTH, Entry, StorageClass, entry, said
from easel.core.audit.redaction import HIDDEN, Redaction, is_secret_name
from easel.core.principal import THE_OWNER, Principal
from easel.core.stream.envelope import EVENT_TYPES, Stream
from easel.core.stream.payload_limit import LIMIT
from easel.errors import BadInput
from easel.ids import UserId
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AT = datetime(2026, 11, 15, 9, 8, 39, 60, tzinfo=UTC)
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "audit.md"
redact = Redaction()


def an_entry(
    action: str = "session.renamed", *, principal: Principal = THE_OWNER, at: datetime = AT, **more: Any
) -> Entry:
    return entry(at, principal, action, redact=redact, **more)


def record_of(made: Entry, seq: int = 1) -> dict[str, Any]:
    return json.loads(made.at_place(seq))


def details_of(details: Mapping[str, Any]) -> dict[str, Any]:
    return record_of(an_entry(details=details))["details"]


# --- a record ---------------------------------------------------------------------------------------------------------


@rule("CC-14", "CC-15", "CC-10")
@pytest.mark.parametrize("action", ACTIONS)
def test_every_record_says_who_and_what_and_that_it_is_of_the_system(action: str) -> None:
    record = record_of(an_entry(action, subject="run_1", details={"reason": "because"}), 7)
    assert record == {
        "seq": 7,
        "at": "2026-11-15T09:08:39.000060Z",
        "storage_class": ACTIONS[action].value,
        "action": action,
        "actor": {"user_id": "owner", "name": "owner"},
        "subject": "run_1",
        "details": {"reason": "because"},
        "metadata": {"visibility": "system"},
    }


def test_a_record_has_its_fields_in_one_order_and_no_space_between_them() -> None:
    text = an_entry("sign_out").at_place(1)
    assert text == (
        '{"seq":1,"at":"2026-11-15T09:08:39.000060Z","storage_class":"audit","action":"sign_out",'
        '"actor":{"user_id":"owner","name":"owner"},"metadata":{"visibility":"system"}}'
    )


def test_the_time_is_told_in_utc_wherever_it_was_taken() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=9)))
    assert record_of(an_entry(at=elsewhere))["at"] == "2026-11-15T09:08:39.000060Z"


def test_an_action_that_is_in_no_table_cannot_be_recorded() -> None:
    with pytest.raises(KeyError):
        an_entry("session.danced")


@rule("RS-06", "CC-13", "CC-02")
def test_no_event_of_any_log_is_of_the_system_so_none_can_reach_a_stream() -> None:
    """What is told to operators has no event type at all: there is no way to put it into a run's, a thread's or a canvas's log."""
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
def test_system_events_have_two_storage_classes_and_both_are_used() -> None:
    assert {one.value for one in StorageClass} == {"ops", "audit"}
    assert set(ACTIONS.values()) == set(StorageClass)


def test_the_guide_lists_every_action_and_no_other() -> None:
    rows = [
        line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    listed = {row[1].strip().strip("`"): row[2].strip() for row in rows if row[2].strip() in ("ops", "audit")}
    assert listed == {action: storage_class.value for action, storage_class in ACTIONS.items()}


# --- what it never says -----------------------------------------------------------------------------------------------

KEY = "sk-proj-4b8Xq1ZzYt7LmN2w"
COOKIE = "1796284800." + "0a1b2c3d" * 8
SECRETS = [
    # a text                                                              what must not be left of it
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
def test_what_looks_like_a_secret_is_hidden_and_the_rest_stays(text: str, secret: str) -> None:
    hidden = redact(text)
    assert secret not in hidden
    assert HIDDEN in hidden
    assert redact(hidden) == hidden
    assert text[:3] == hidden[:3] or hidden.startswith(HIDDEN)


@case("P6")
@pytest.mark.parametrize(
    "begins",
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
def test_every_shape_of_a_key_is_found_though_most_texts_are_not_searched_for_it(
    begins: str, dash: str
) -> None:
    assert redact(f"it was {begins}{dash}A1b2C3d4E5f6") == f"it was {HIDDEN}"


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
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert redact(text) == text


@case("P6")
def test_a_secret_that_is_known_is_hidden_whatever_it_looks_like() -> None:
    knowing = Redaction(["correct horse battery", "pass/w@rd!"])
    assert knowing("it was correct horse battery staple") == f"it was {HIDDEN} staple"
    assert knowing("?x=pass%2Fw%40rd%21") == f"?x={HIDDEN}"
    assert Redaction(["a"])("banana") == "banana", "a word that short would blank out everything"


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
def test_what_stands_under_the_name_of_a_secret_is_hidden(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret
    assert details_of({"inside": [{name: "just a word"}]}) == {
        "inside": [{name: HIDDEN if is_secret else "just a word"}]
    }


@case("P6")
def test_a_secret_is_found_in_every_part_of_a_record() -> None:
    principal = Principal(UserId(f"user {KEY}"), f"name {KEY}")
    made = an_entry(
        principal=principal,
        subject=f"subject {KEY}",
        details={f"key {KEY}": 1, "list": [f"x {KEY}", {"deep": (f"y {KEY}",)}]},
    )
    assert KEY not in made.rest
    assert KEY not in made.user_id
    assert made.rest.count(HIDDEN) == 6


@case("P6")
@pytest.mark.parametrize("before", [0, 460, 1_390, 5_000, 16_000, 500_000])
def test_no_cut_leaves_half_a_secret_behind(before: int) -> None:
    text = "x" * before + f" key {KEY} " + "y" * before
    for part in (KEY, KEY[:12], KEY[-12:]):
        assert part not in an_entry(details={"message": text}, subject=text).rest


# --- light, and one line ----------------------------------------------------------------------------------------------


def size(made: Entry) -> int:
    return len(json.dumps(record_of(made)["details"], ensure_ascii=False, separators=(",", ":")).encode())


@rule("CC-23", "CC-26")
def test_a_long_stack_trace_keeps_both_its_ends() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        + '  File "x.py", line 1, in f\n' * 5_000
        + "RuntimeError: the end of it"
    )
    made = an_entry(
        "run.error",
        details={
            "reference": "ref_1",
            "exception": "RuntimeError",
            "message": "m" * 50_000,
            "traceback": trace,
        },
    )
    kept = record_of(made)["details"]
    assert size(made) <= LIMIT
    assert (kept["reference"], kept["exception"]) == ("ref_1", "RuntimeError")
    assert kept["traceback"].startswith("Traceback (most")
    assert kept["traceback"].endswith("the end of it")
    assert "characters cut" in kept["traceback"]


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
def test_whatever_it_is_given_a_record_stays_light_and_is_one_line(
    details: dict[str, Any], repeated: int
) -> None:
    details = {**details, "long": "QUJD" * repeated, "much": ["text"] * repeated}
    made = an_entry(subject=str(details), details=details)
    text = made.at_place(2**63 - 1)
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert json.loads(text)["seq"] == 2**63 - 1
    assert len(text.encode()) < 3 * LIMIT


@rule("CC-26")
def test_what_is_too_heavy_even_so_becomes_a_marker_that_promises_nothing() -> None:
    """Fifty texts of a hundred characters: no single one is long. Nothing is kept beside a record, so there is no `uri`."""
    made = an_entry(details={"notes": [f"{nth} " + "word " * 40 for nth in range(50)]})
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
def test_nothing_in_a_record_begins_a_line_or_speaks_to_a_terminal(text: str) -> None:
    made = an_entry(
        principal=Principal(UserId(text), text), subject=text, details={text: text, "more": [text]}
    )
    assert made.rest.isprintable()
    assert record_of(made)["subject"].isascii(), "it is still told what it was"


@case("R6")
def test_a_title_of_a_megabyte_is_cut() -> None:
    made = an_entry(subject="t" * 1_000_000, details={"title": "\r\n" * 500_000})
    assert len(made.rest) < 3 * LIMIT
    assert len(record_of(made)["subject"]) < MAX_NAME_LENGTH + 50


# --- the chain --------------------------------------------------------------------------------------------------------


def a_chain(count: int = 6) -> list[Link]:
    return chained(
        START, [an_entry(at=AT + timedelta(seconds=nth), subject=f"s{nth}") for nth in range(count)]
    )


def end_of(links: list[Link]) -> End:
    return End(ChainPosition(links[-1].seq, links[-1].hash), links[-1].seq)


def checked(links: list[Link], end: End) -> ChainPosition | Break:
    place = follow(START, links)
    return place if isinstance(place, Break) else check_end(place, end) or place


@rule("CC-06")
def test_a_hash_covers_the_hash_before_it_and_the_record() -> None:
    first, second = a_chain(2)
    assert first.hash == hashlib.sha256(b"\n" + first.record.encode()).hexdigest()
    assert second.hash == hashlib.sha256(first.hash.encode() + b"\n" + second.record.encode()).hexdigest()
    assert [said(link.record)["seq"] for link in (first, second)] == [1, 2]


@rule("CC-06")
def test_a_chain_is_followed_to_its_end_in_pages_of_any_size() -> None:
    links = a_chain(7)
    assert checked(links, end_of(links)) == ChainPosition(7, links[-1].hash)
    for cut in range(8):
        half = follow(START, links[:cut])
        assert isinstance(half, ChainPosition)
        assert follow(half, links[cut:]) == ChainPosition(7, links[-1].hash)
    assert follow(START, []) == START
    assert check_end(START, End(START, 0)) is None


def rehashed(links: list[Link], start: int) -> list[Link]:
    """What a forger does who knows how it works: every hash from here on is made anew."""
    place = START if start == 0 else ChainPosition(links[start - 1].seq, links[start - 1].hash)
    fresh = list(links)
    for nth in range(start, len(links)):
        fresh[nth] = replace(links[nth], hash=link_hash(place.hash, links[nth].record))
        place = ChainPosition(fresh[nth].seq, fresh[nth].hash)
    return fresh


def edited(links: list[Link], nth: int) -> list[Link]:
    return [
        replace(link, record=link.record.replace('"subject":"s', '"subject":"S')) if at == nth else link
        for at, link in enumerate(links)
    ]


def renumbered(links: list[Link], nth: int) -> list[Link]:
    """The record is gone and those behind it have closed the gap, their columns and their texts too."""
    left = [link for link in links if link.seq != nth + 1]
    offloaded = [
        replace(link, seq=at, record=link.record.replace(f'"seq":{link.seq},', f'"seq":{at},'))
        for at, link in enumerate(left, 1)
    ]
    return rehashed(offloaded, nth)


TAMPERINGS: list[tuple[str, Callable[[list[Link]], list[Link]], int]] = [
    # somebody has …                                  how                                                            found at
    ("edited a record", lambda links: edited(links, 2), 3),
    ("edited the first record", lambda links: edited(links, 0), 1),
    ("edited a record and its hash", lambda links: rehashed(edited(links, 2), 2)[:3] + links[3:], 4),
    ("edited a record and every hash from there", lambda links: rehashed(edited(links, 2), 2), 6),
    ("edited the last record and its hash", lambda links: rehashed(edited(links, 5), 5), 6),
    ("removed a record", lambda links: links[:2] + links[3:], 3),
    ("removed the first record", lambda links: links[1:], 1),
    ("removed a record and closed the gap", lambda links: renumbered(links, 2), 6),
    ("cut off the end", lambda links: links[:4], 5),
    ("cut off everything", lambda _: [], 1),
    ("swapped two texts", lambda links: [links[0], replace(links[1], record=links[2].record), replace(links[2], record=links[1].record), *links[3:]], 2),
    ("swapped two records with their hashes", lambda links: [links[0], replace(links[2], seq=2), replace(links[1], seq=3), *links[3:]], 2),
    ("put one before the first", lambda links: [replace(links[0], seq=0), *links], 0),
    ("put one behind the last", lambda _: chained(START, [an_entry(at=AT + timedelta(seconds=nth), subject=f"s{nth}") for nth in range(7)]), 7),
    ("made a text that is no record", lambda links: [replace(links[0], record="[]", hash=link_hash("", "[]")), *links[1:]], 1),
    ("changed whose it is", lambda links: [links[0], replace(links[1], user_id="mallory"), *links[2:]], 2),
    ("changed when it was", lambda links: [links[0], replace(links[1], at=AT + timedelta(microseconds=1)), *links[2:]], 2),
    ("changed what was done", lambda links: [links[0], replace(links[1], action="session.created"), *links[2:]], 2),
    ("changed its storage class", lambda links: [links[0], replace(links[1], storage_class="ops"), *links[2:]], 2),
]  # fmt: skip


@rule("CC-06")
@pytest.mark.parametrize("says, tamper, found_at", TAMPERINGS, ids=[row[0] for row in TAMPERINGS])
def test_whatever_somebody_does_to_the_records_is_found(
    says: str, tamper: Callable[[list[Link]], list[Link]], found_at: int
) -> None:
    links = a_chain()
    spoilt = tamper(links)
    end = end_of(links)
    found = checked(spoilt, replace(end, newest=max((link.seq for link in spoilt), default=0)))
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
    ids=["gone", "moved back", "another hash", "moved on", "emptied"],
)
def test_whatever_somebody_does_to_the_head_is_found(head: ChainPosition | None, found_at: int) -> None:
    links = a_chain()
    found = checked(links, End(head, 6))
    assert isinstance(found, Break)
    assert found.seq == found_at


@rule("CC-06")
@given(st.data())
def test_no_byte_of_a_record_can_change_unseen(data: st.DataObject) -> None:
    links = a_chain(4)
    nth = data.draw(st.integers(0, 3))
    text = links[nth].record
    at = data.draw(st.integers(0, len(text) - 1))
    char = data.draw(st.characters(exclude_categories=["Cs"]).filter(lambda one: one != text[at]))
    spoilt = replace(links[nth], record=text[:at] + char + text[at + 1 :])
    found = follow(START, [*links[:nth], spoilt, *links[nth + 1 :]])
    assert isinstance(found, Break)
    assert found.seq == nth + 1


def test_a_place_is_read_as_it_was_printed() -> None:
    place = ChainPosition(12, "ab" * 32)
    assert parse_position(f" {place}\n") == place
    for wrong in ("", "12", "12:xy", "0:" + "ab" * 32, f"-1:{'ab' * 32}", f"12:{'AB' * 32}"):
        with pytest.raises(BadInput):
            parse_position(wrong)


def test_a_spoilt_record_can_still_be_shown() -> None:
    for text in ("", "{", "[1]", "null", "{" * 100_000, '"text"'):
        assert said(text) == {"details": {"unreadable": True}}
    assert said(an_entry(principal=EASEL).at_place(1))["actor"] == {"user_id": "easel", "name": "easel"}
