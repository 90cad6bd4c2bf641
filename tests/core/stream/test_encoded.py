"""What is taken for Base64, and what never is."""

import base64
import json
import math
import os
import random
import urllib.parse
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.stream.encoded import holds_encoded
from easel.core.stream.payload_limit import LIMIT
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule

CHANCE = random.Random(20_260_101)
ROOT = Path(__file__).parents[3]
SAYING = (
    "the quick brown fox jumps over a lazy dog while Agents and People work on the same persistent surface where Nothing is lost "
    "and every event counts in order of time because logs are the truth and iPhones do not lie in 2026"
)
WORDS: list[str] = [*SAYING.split()]


def prose(words: int) -> str:
    return " ".join(CHANCE.choice(WORDS) for _ in range(words))


def wrapped(text: str, width: int, between: str) -> str:
    return between.join(text[at : at + width] for at in range(0, len(text), width))


def torn(text: str, most: int, between: str) -> str:
    pieces: list[str] = []
    while text:
        cut = CHANCE.randint(1, most)
        pieces.append(text[:cut])
        text = text[cut:]
    return between.join(pieces)


NOISE = CHANCE.randbytes(9_000)
CONTENTS = {
    "random bytes": NOISE,
    "zeros": bytes(9_000),
    "one letter": b"x" * 9_000,
    "three letters": b"ABC" * 3_000,
    "prose": prose(1_500).encode(),
    "prose in Cyrillic": "Привет мир как дела ".encode() * 300,
    "prose in Chinese": "漢字文化圏日本語中文".encode() * 300,
    "JSON": b'{"id":1,"name":"Ann","list":[1,2,3]}' * 300,
    "source": (ROOT / "src/easel/errors.py").read_bytes(),
    "PNG": b"\x89PNG\r\n\x1a\n" + zlib.compress(NOISE),
    "JPEG": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + NOISE,
    "bitmap of one colour": b"BM" + NOISE[:52] + b"\x20\x40\xee" * 3_000,
    "sound": b"".join(
        int(2_000 * math.sin(at / 20)).to_bytes(2, "little", signed=True) for at in range(4_500)
    ),
}
FORMS: dict[str, Callable[[str], str]] = {
    "whole": str,
    "lines of 76": lambda text: wrapped(text, 76, "\n"),
    "lines of 64, CRLF": lambda text: wrapped(text, 64, "\r\n"),
    "lines of 32": lambda text: wrapped(text, 32, "\n"),
    "indented lines": lambda text: wrapped(text, 60, "\n        "),
    "tabs": lambda text: wrapped(text, 20, "\t"),
    "literal line breaks": lambda text: wrapped(text, 76, "\\n"),
    "literal line breaks, twice escaped": lambda text: wrapped(text, 76, "\\\\r\\\\n"),
    "torn at random": lambda text: torn(text, 100, "\n"),
    "torn into little pieces": lambda text: torn(text, 20, " "),
    "per cent": lambda text: urllib.parse.quote(text, safe=""),
    "HTML entities": lambda text: text.replace("/", "&#x2F;").replace("+", "&#43;").replace("=", "&#x3D;"),
    "data: URL in HTML": lambda text: f'<p>See <img src="data:image/png;base64,{text}" alt="it"></p>',
    "data: URL, per cent": lambda text: "data:;base64," + urllib.parse.quote(text, safe=""),
    "in prose": lambda text: f"{prose(40)}. Here: {text}, and so on.",
    "in prose without punctuation": lambda text: f"{prose(900)}\n{wrapped(text, 76, chr(10))}\n{prose(900)}",
    "JSON in a string": lambda text: json.dumps({"id": 7, "image": text, "sha256": "none"}),
    "a list in a string": lambda text: json.dumps(
        json.dumps([text[at : at + 500] for at in range(0, len(text), 500)])
    ),
    "a sum in code": lambda text: 'PIXELS = "' + wrapped(text, 60, '" +\n    "') + '"',
}


@rule("CC-23", "CC-26")
@case("R3")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", CONTENTS)
def test_base64_is_seen_whatever_it_holds_and_however_it_is_written(content: str, form: str):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(CONTENTS[content]).decode()
        assert holds_encoded(FORMS[form](text))
        assert holds_encoded(FORMS[form](text.rstrip("=")[: LIMIT + 1]))


EXACT = [
    # says                              a text with so many characters of Base64
    ("whole", lambda n: STANDARD[:n]),
    ("base64url", lambda n: URL_SAFE[:n]),
    ("nothing but zeros", lambda n: "A" * n),
    ("one break", lambda n: STANDARD[: n // 2] + "\n" + STANDARD[n // 2 : n - 1]),
    ("lines of 76", lambda n: wrapped(STANDARD, 76, "\n")[:n]),
    ("lines of 64, CRLF", lambda n: wrapped(URL_SAFE, 64, "\r\n")[:n]),
    ("lines of zeros", lambda n: wrapped("A" * 3_000, 72, "\n")[:n]),
    ("words beside it", lambda n: f"Look at this {STANDARD[:n]} and say v2 again"),
    ("words and lines", lambda n: "Look\nat this\n" + wrapped(STANDARD, 76, "\n")[:n] + "\nand then say\nit"),
    ("a data: URL", lambda n: f"![it](data:image/png;base64,{STANDARD[:n]})"),
    ("a data: URL without one capital", lambda n: f"data:;base64,{'7u' * 2_000}"[: n + 13]),
    ("JSON in a string", lambda n: json.dumps({"base64": STANDARD[:n], "sha256": "0" * 64})),
    ("with padding", lambda n: STANDARD[: n - 2] + "=="),
    ("with padding, per cent", lambda n: STANDARD_62[: n - 6] + "%3D%3D"),
    ("between letters of other scripts", lambda n: f"это{STANDARD[:n]}😀"),
]
STANDARD, URL_SAFE = base64.b64encode(NOISE).decode(), base64.urlsafe_b64encode(NOISE).decode()
STANDARD_62 = STANDARD.replace("+", "a").replace("/", "b")


@rule("RS-35", "CC-23")
@case("R3")
@pytest.mark.parametrize("says, text", EXACT, ids=[row[0] for row in EXACT])
def test_2048_characters_as_written_pass_and_2049_do_not(says: str, text: Callable[[int], str]):
    assert not holds_encoded(text(LIMIT - 1))
    assert not holds_encoded(text(LIMIT))
    assert holds_encoded(text(LIMIT + 1))


@case("R3")
def test_ten_megabytes_are_seen():
    assert holds_encoded(base64.b64encode(CHANCE.randbytes(7_500_000)).decode())


@settings(max_examples=300)
@given(
    st.integers(0, 2**32),
    st.integers(LIMIT + 60, 6_000),
    st.sampled_from(["\n", " ", "\t", "\r\n", "\\n", "  \n "]),
    st.sampled_from([1, 24, 50, 400]),
    st.text(max_size=60),
)
def test_no_tearing_hides_it(seed: int, size: int, between: str, fewest: int, beside: str):
    """Some characters more than the limit, as a piece at the edge that happens to be a word is taken for one beside it."""
    chance = random.Random(seed)
    text = base64.b64encode(chance.randbytes(size)).decode()[:size]
    pieces: list[str] = []
    while text:
        cut = chance.randint(fewest, 2 * fewest + 6)
        pieces.append(text[:cut])
        text = text[cut:]
    assert holds_encoded(f"{beside}. {between.join(pieces)}")


def hexes(digits: int) -> str:
    return "\n".join(CHANCE.randbytes(digits // 2).hex() for _ in range(300))


def names(make: Callable[[list[str]], str], between: str = "\n") -> str:
    return between.join(make([CHANCE.choice(WORDS) for _ in range(CHANCE.randint(2, 4))]) for _ in range(400))


def camel(words: list[str]) -> str:
    return words[0].lower() + "".join(word.capitalize() for word in words[1:])


def pem(size: int) -> str:
    content = wrapped(base64.b64encode(CHANCE.randbytes(size)).decode(), 64, "\n")
    return f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----"


ORDINARY = {
    **{f"digests of {digits}": hexes(digits) for digits in (32, 40, 64, 96, 128)},
    **{f"digests of {digits}, upper case": hexes(digits).upper() for digits in (32, 40, 64, 96, 128)},
    "a listing of digests": "\n".join(f"{CHANCE.randbytes(32).hex()}  src/{CHANCE.choice(WORDS)}.py" for _ in range(200)),
    "digests in a JSON list": json.dumps(hexes(64).split()),
    "SRI sha256": "\n".join("sha256-" + base64.b64encode(CHANCE.randbytes(32)).decode() for _ in range(100)),
    "SRI sha384": "\n".join("sha384-" + base64.b64encode(CHANCE.randbytes(48)).decode() for _ in range(100)),
    "SRI sha512": " ".join("sha512-" + base64.b64encode(CHANCE.randbytes(64)).decode() for _ in range(100)),
    "padded digests": "\n".join(base64.b64encode(CHANCE.randbytes(32)).decode() for _ in range(100)),
    "UUIDs": "\n".join(str(uuid.UUID(bytes=CHANCE.randbytes(16))) for _ in range(200)),
    "UUIDs, upper case": " ".join(str(uuid.UUID(bytes=CHANCE.randbytes(16))).upper() for _ in range(200)),
    "tokens with dots": " ".join("eyJhbGciOiJIUzI1NiJ9." + URL_SAFE[:300] + "." + URL_SAFE[300:343] for _ in range(9)),
    "prose": prose(2_000),
    "prose, lower case": prose(2_000).lower(),
    "prose, upper case": prose(2_000).upper(),
    "prose, title case": prose(2_000).title(),
    "a long number": "".join(CHANCE.choice("0123456789") for _ in range(5_000)),
    "many numbers": " ".join(str(CHANCE.randint(0, 10**6)) for _ in range(900)),
    "one letter": "x" * 5_000,
    "small letters": "".join(CHANCE.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5_000)),
    "small letters and digits": "".join(CHANCE.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(5_000)),
    "a hex run": NOISE.hex(),
    "a hex run, upper case": NOISE.hex().upper(),
    "a hex run with its prefix": "0x" + NOISE.hex().upper(),
    "a hex dump": "\n".join(f"{at * 16:08x}  {CHANCE.randbytes(16).hex(' ', 2)}" for at in range(200)),
    "a hex dump, upper case": "\n".join(f"{at * 16:08X}  {CHANCE.randbytes(16).hex(' ').upper()}" for at in range(200)),
    "names in camelCase": names(camel),
    "names in PascalCase": names(lambda words: "".join(word.capitalize() for word in words), " "),
    "names in snake_case": names("_".join),
    "names in CONSTANT_CASE": names(lambda words: "_".join(words).upper()),
    "very long names": "\n".join("AbstractSingletonProxyFactoryBeanDefinition" + CHANCE.choice(WORDS).title() for _ in range(90)),
    "a long path": "/Library/Ann/Documents/Projects/Easel/src" * 90,
    "many paths": "\n".join(f"/usr/Share/Locale/{CHANCE.choice(WORDS)}/{camel(WORDS[:3])}" for _ in range(200)),
    "a long URL": "https://example.org/a?" + "&".join(f"{word}={urllib.parse.quote(prose(5))}" for word in WORDS * 3),
    "a table": "\n".join(f"{at},{CHANCE.choice(WORDS)},{CHANCE.random():.4f},{CHANCE.choice(WORDS).title()}" for at in range(200)),
    "sortable ids": "\n".join("01" + "".join(CHANCE.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(24)) for _ in range(150)),
    "answers": "PASSED FAILED SKIPPED COMPLETED SUCCESS\n" * 90,
    "one answer": "SUCCESS\n" * 400,
    "lines": "-" * 3_000 + "\n" + "=" * 3_000 + "\n" + "_" * 3_000 + "\n" + "/" * 3_000 + "\n" + "+" * 3_000,
    "styles": ".card{margin:0 auto;padding:1rem}" * 100,
    "minified code": "function a(b,c){return b?c(b,function(d){return d.x}):null};var e=a(F,G)||H;" * 60,
    "minified code with odd names": "_.Mh=function(aB,b){return aB.Ya&&(cD=b.xE(aB,9),!0)};var iF=k1?null:_.Qa(7,jG);" * 60,
    "numbers in code": "/[" + "".join(f"\\u{code:04X}-\\u{code + 9:04X}" for code in range(170, 9_000, 37)) + "]/",
    "a drawing": "M" + "".join(f"{CHANCE.choice('lcsLCS')}{CHANCE.uniform(-9, 9):.2f}-{CHANCE.uniform(0, 9):.2f}" for _ in range(500)),
    "a game of chess": " ".join(f"{at}. {CHANCE.choice(['Nf3', 'e4', 'Bb5', 'O-O', 'Qxd5+'])} {CHANCE.choice(['Nc6', 'e5', 'a6'])}" for at in range(300)),
    "molecules": " ".join(CHANCE.choice(["CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "C1CCCCC1"]) for _ in range(200)),
    "long constants": names(lambda words: "_".join([*words, *words, *words]).upper()),
    "single letters": " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 60) + " " + " ".join("abcdefghijklmnopqrstuvwxyz" * 60),
    "a mostly empty line": "aB3" + " " * 3_000 + "cD4",
    "a log of changes": "\n".join(f"{CHANCE.randbytes(20).hex()} Mend the {camel(WORDS[:3])} of #{at}" for at in range(100)),
    "certificates": "\n".join(pem(size) for size in (1_198, 1_199, 1_200, 1_201, 1_200, 1_200)),
    "JSON": json.dumps([{"id": at, "userName": "AnnLee", "isActive": True, "tags": WORDS[:6]} for at in range(60)]),
}  # fmt: skip


@rule("CC-26")
@pytest.mark.parametrize("what", ORDINARY)
def test_ordinary_text_is_not_mistaken_for_base64(what: str):
    assert len(ORDINARY[what]) > LIMIT
    assert not holds_encoded(ORDINARY[what])


def test_two_short_pieces_of_base64_are_not_one_long_one():
    padded = base64.b64encode(NOISE[:1_099]).decode()
    assert padded.endswith("=")
    assert not holds_encoded(f"{padded}\n{padded}\n{padded}")
    assert not holds_encoded(f"{STANDARD[:1_500]}; {STANDARD[:1_500]}")


MEGABYTES = 10_000_000
SMALL_WORDS = "the end of all words " * 120
HARD = {
    # What made a first draft slow, or would make a regular expression go back and forth.
    "dots": "." * MEGABYTES,
    "spaces": " " * MEGABYTES,
    "capitals and spaces": "A " * (MEGABYTES // 2),
    "odd capitals and spaces": "aB " * (MEGABYTES // 3),
    "prose in capitals": (prose(1_000).upper() + " ") * (MEGABYTES // 5_000),
    "quotes": '"' * MEGABYTES,
    "quotes behind lines": ("a" * 40 + '"') * (MEGABYTES // 41),
    "quotes between lines": ("a" * 40 + '"+"') * (MEGABYTES // 43),
    "backslashes": "\\" * MEGABYTES,
    "per cent": "%2B" * (MEGABYTES // 3),
    "heads of data: URLs": "base64," * (MEGABYTES // 7),
    "just short enough": (STANDARD[:LIMIT] + ".") * (MEGABYTES // LIMIT),
    "just short enough, among words": (STANDARD[:1_900] + " " + SMALL_WORDS) * (MEGABYTES // 4_400),
    "alphabets in turn": ("a" * 1_000 + "_" + "a" * 1_030 + "+") * (MEGABYTES // LIMIT),
    "odd words": "aBc9 ." * (MEGABYTES // 6),
    "odd words, quoted": '"aB"' * (MEGABYTES // 4),
    "letters alone": "a B 3 " * (MEGABYTES // 6),
    "what recurs": "xY,aB3;" * (MEGABYTES // 7),
    "one long gap": "aB3" + "." * MEGABYTES + "cD4",
    "emoji": "😀" * (MEGABYTES // 4),
    "half pairs": "\ud800" * (MEGABYTES // 3),
}


@case("R3")
@pytest.mark.parametrize("what", HARD)
def test_the_time_it_takes_is_in_proportion_to_the_text_whatever_it_is(what: str):
    """Ten times the text in about ten times the time: what is quadratic takes a hundred times, and fails by far."""
    small = HARD[what][: MEGABYTES // 10]

    def look(text: str) -> None:
        assert not holds_encoded(text)

    most = 30 * least_seconds(lambda: look(small)) + 0.1
    assert least_seconds(lambda: look(HARD[what]), enough=most) < most


def stdlib() -> list[Path]:
    return sorted(Path(os.__file__).parent.glob("*.py"))


@rule("CC-26")
def test_no_source_and_no_page_of_ours_nor_of_pythons_is_mistaken():
    files = [
        *stdlib(),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("src/**/*.sql"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("*.md"),
    ]
    assert len(files) > 250
    mistaken = [path.name for path in files if holds_encoded(path.read_text("utf-8"))]
    assert mistaken == []
