"""Lists of names, keys, digests and tokens are no Base64 that was cut up, however odd they are."""

import base64
import hashlib
import json
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from easel.core.stream.encoded import holds_encoded
from easel.core.stream.payload_limit import LIMIT, light_value
from tests.requirements import rule

CHANCE = random.Random(1_966)
BASE_62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
BASE_64 = BASE_62 + "-_"
BASE_58 = BASE_62.translate(dict.fromkeys(map(ord, "0OIl")))


def odd(size: int, letters: str = BASE_64) -> str:
    return "".join(CHANCE.choices(letters, k=size))


def many(make: Callable[[], Any], times: int = 300) -> list[Any]:
    return [make() for _ in range(times)]


def encoded(size: int) -> str:
    return base64.urlsafe_b64encode(CHANCE.randbytes(size)).decode()


UPPER = ["QUIC", "STREAM", "LIMIT", "ERROR", "CLIENT", "REQUEST", "IDLE", "TIMEOUT", "HANDSHAKE"]
KNOWN = many(lambda: odd(12), 60)  # whoever is referred to

LISTS: dict[str, list[str]] = {
    **{
        f"names of {size}": many(lambda size=size: odd(size))
        for size in (9, 10, 11, 13, 15, 17, 18, 19, 21, 22, 23)
    },
    **{
        f"names of {size} without signs": many(lambda size=size: odd(size, BASE_62))
        for size in (8, 10, 12, 16, 20, 24, 32, 40)
    },
    **{
        f"{size} bytes each": many(lambda size=size: encoded(size).rstrip("="))
        for size in (8, 16, 20, 32, 64)
    },
    **{f"{size} bytes each, padded": many(lambda size=size: encoded(size)) for size in (8, 16, 20, 32, 64)},
    "addresses in base58": many(lambda: odd(44, BASE_58)),
    "names with a type": many(lambda: CHANCE.choice(["cus_", "sub_", "pi_", "price_"]) + odd(24, BASE_62)),
    "digests for browsers": many(lambda: "sha384-" + base64.b64encode(CHANCE.randbytes(48)).decode(), 100),
    "digests of many kinds": [
        f"sha{size * 8}-" + base64.b64encode(CHANCE.randbytes(size)).decode() for size in (32, 48, 64) * 30
    ],
    "digests in hex": many(lambda: CHANCE.randbytes(32).hex(), 100),
    "digests in hex, upper case": many(lambda: CHANCE.randbytes(32).hex().upper(), 100),
    "UUIDs": many(lambda: str(uuid.UUID(bytes=CHANCE.randbytes(16)))),
    "UUIDs, upper case": many(lambda: str(uuid.UUID(bytes=CHANCE.randbytes(16))).upper()),
    "ULIDs": many(lambda: "01" + odd(24, "0123456789ABCDEFGHJKMNPQRSTVWXYZ")),
    "license keys": many(lambda: "-".join(odd(5, BASE_62[:26] + "0123456789") for _ in range(5))),
    "signed tokens": many(
        lambda: f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0{odd(60)}.{encoded(32).rstrip('=')}", 50
    ),
    "public keys": many(lambda: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{encoded(32)[:43]} ann@laptop", 60),
    "fingerprints": many(
        lambda: f"256 SHA256:{base64.b64encode(CHANCE.randbytes(32)).decode()[:43]} ann@laptop (ED25519)", 80
    ),
    "names of one time": many(lambda: "-OAb" + odd(16)),
    "names of objects in an API": [
        base64.b64encode(f"Repository:{at}".encode()).decode() for at in range(300)
    ],
    "names that come again": many(lambda: CHANCE.choice(KNOWN)),
    "addresses of films": many(lambda: f"https://www.youtube.com/watch?v={odd(11)}"),
    "addresses of tables": many(lambda: f"https://docs.google.com/spreadsheets/d/1{odd(43)}/edit#gid=0", 60),
    "versions": many(lambda: CHANCE.choice(["iOS17", "macOS14", "iPadOS17", "x86_64", "arm64"]), 900),
    "colours": many(lambda: f"#{CHANCE.randrange(2**24):06X}", 500),
    "constants": many(lambda: "_".join(CHANCE.choices(UPPER, k=7)), 100),
    "parts": many(lambda: f"{odd(3, BASE_62[:26])}{CHANCE.randrange(9_999)}-{odd(2, BASE_62[:26])}", 400),
    "resources": many(
        lambda: (
            f"arn:aws:iam::123456789012:policy/service-role/AWS{CHANCE.choice(['Lambda', 'S3', 'EC2'])}Role"
        ),
        80,
    ),
    "commits": [
        f"{hashlib.sha1(str(at).encode(), usedforsecurity=False).hexdigest()} Mend HTTPServer2 for #{at}"
        for at in range(100)
    ],
}


@rule("CC-26", "RS-35")
@pytest.mark.parametrize("what", LISTS)
def test_a_list_of_names_stays_as_it_is(what: str):
    names = LISTS[what]
    assert sum(map(len, names)) > LIMIT
    for value in (
        {"selected": names},
        [{"id": name, "done": True} for name in names],
        dict.fromkeys(names, 1),
        [[name] for name in names],
    ):
        assert light_value(value) == (json.loads(json.dumps(value)), ())
    for text in (
        "\n".join(names),
        ", ".join(names),
        json.dumps(names),
        "\n".join(f"- `{name}`: done" for name in names),
    ):
        assert not holds_encoded(text)


TABLES: dict[str, Any] = {
    "people": [{"id": odd(21), "name": CHANCE.choice(["Ann Lee", "Bo", "Carla Diaz"]), "team": odd(19), "isActive": True} for _ in range(200)],
    "a graph": {
        "nodes": [{"id": name, "type": "task", "data": {"label": f"Load file {at}"}, "position": {"x": at, "y": 2}} for at, name in enumerate(KNOWN)],
        "edges": [{"id": f"e{at}", "source": CHANCE.choice(KNOWN), "target": CHANCE.choice(KNOWN)} for at in range(300)],
    },
    "things by name": {odd(21): {"title": "Some thing to do", "done": False} for _ in range(200)},
    "names by name": {odd(21): odd(21) for _ in range(200)},
    "a lock file": {f"node_modules/p{at}": {"version": f"1.{at}.0", "integrity": "sha512-" + base64.b64encode(CHANCE.randbytes(64)).decode()} for at in range(100)},
}  # fmt: skip


@rule("CC-26", "RS-35")
@pytest.mark.parametrize("what", TABLES)
def test_a_table_with_names_stays_as_it_is(what: str):
    assert light_value(TABLES[what]) == (TABLES[what], ())
    assert not holds_encoded(json.dumps(TABLES[what]))
    assert not holds_encoded(json.dumps(TABLES[what], indent=2))


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


TOLD_APART = [
    # says, pieces of one text that look like names at first
    ("a sign that no name has", pieces(base64.b64encode(CHANCE.randbytes(9_000)).decode(), 21)),
    ("a shorter last one", pieces(base64.urlsafe_b64encode(CHANCE.randbytes(9_000)).decode()[:11_990], 21)),
    (
        "whole groups of four, with signs",
        pieces(base64.urlsafe_b64encode(CHANCE.randbytes(9_000)).decode(), 20),
    ),
    ("too long for a name", pieces(base64.urlsafe_b64encode(CHANCE.randbytes(9_000)).decode()[:11_700], 39)),
    (
        "the head of a picture",
        pieces(
            base64.urlsafe_b64encode(b"\x89PNG\r\n\x1a\n" + CHANCE.randbytes(9_001)).decode()[:11_991], 21
        ),
    ),
    (
        "what it says",
        pieces(
            base64.urlsafe_b64encode(b"The log is the truth, and every transport is a tail. " * 200).decode()[
                :14_007
            ],
            21,
        ),
    ),
]


@rule("CC-23", "RS-35")
@pytest.mark.parametrize("says, cut", TOLD_APART, ids=[row[0] for row in TOLD_APART])
def test_pieces_of_one_text_are_told_from_names(says: str, cut: list[str]):
    assert light_value({"selected": cut})[1]
    assert light_value([{"id": piece} for piece in cut])[1]
