"""What counts as a run of Base64, how it is measured, and what never counts."""

import base64
import hashlib
import json
import os
import random
import re
import urllib.parse
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from easel.core.stream.base64_runs import find_base64_runs, holds_base64, open_run_start
from easel.core.stream.marker import LIMIT
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule
from tests.support.length import examples

RANDOM = random.Random(20_260_101)
ROOT = Path(__file__).parents[3]
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "Agents",
    "and",
    "People",
    "work",
    "on",
    "the",
    "same",
    "persistent",
    "surface",
    "where",
    "every",
    "event",
    "counts",
    "in",
    "order",
    "of",
    "time",
    "because",
    "logs",
    "are",
    "the",
    "truth",
    "and",
    "iPhones",
    "were",
    "sold",
    "in",
    "2026",
]
LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"


def prose(words: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=words))


def letters(alphabet: str, count: int) -> str:
    return "".join(RANDOM.choices(alphabet, k=count))


def wrap(text: str, width: int, separator: str = "\n") -> str:
    return separator.join(text[at : at + width] for at in range(0, len(text), width))


NOISE = RANDOM.randbytes(6_000)
STANDARD, URL_SAFE = base64.b64encode(NOISE).decode(), base64.urlsafe_b64encode(NOISE).decode()
CONTENTS = {
    "random bytes": NOISE,
    "zeros": bytes(6_000),
    "bytes of 255": b"\xff" * 6_000,
    "the letter a": b"a" * 6_000,
    "the letter A": b"A" * 6_000,
    "numbers of four bytes": b"".join(number.to_bytes(4, "little") for number in range(1_500)),
    "prose": prose(1_200).encode(),
    "Cyrillic prose": "Привет мир как дела ".encode() * 200,
    "JSON": b'{"id":1,"name":"Ann","list":[1,2,3]}' * 200,
    "source code": (ROOT / "src/easel/errors.py").read_bytes(),
    "PNG": b"\x89PNG\r\n\x1a\n" + zlib.compress(NOISE),
    "bitmap of one colour": b"BM" + NOISE[:52] + b"\x20\x40\xee" * 2_000,
}
FORMS: dict[str, Callable[[str], str]] = {
    "unbroken": str,
    "lines of 76": lambda text: wrap(text, 76),
    "lines of 64 with CRLF": lambda text: wrap(text, 64, "\r\n"),
    "lines of 1,000": lambda text: wrap(text, 1_000),
    "indented lines": lambda text: wrap(text, 60, "\n        "),
    "escaped line breaks": lambda text: wrap(text, 76, "\\n"),
    "line breaks escaped twice": lambda text: wrap(text, 76, "\\\\r\\\\n"),
    "JSON with escaped slashes": lambda text: json.dumps({"id": 7, "image": text}).replace("/", "\\/"),
    "JSON with escaped plus signs": lambda text: json.dumps([text]).replace("+", "\\u002B"),
    "percent-encoded": lambda text: urllib.parse.quote(text, safe=""),
    "data URI": lambda text: f'<p>See <img src="data:image/png;base64,{text}" alt="it"></p>',
    "data URI, percent-encoded": lambda text: "data:;base64," + urllib.parse.quote(text, safe=""),
    "between sentences": lambda text: f"{prose(40)}. Here: {text}, and so on.",
    "between lines of prose": lambda text: f"{prose(900)}\n{wrap(text, 76)}\n{prose(900)}",
}


@rule("CC-23", "CC-26")
@case("R3")
@pytest.mark.parametrize("form", FORMS)
def test_base64_of_any_content_is_found(form: str):
    for content, data in CONTENTS.items():
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            if content == "bytes of 255" and encode is base64.urlsafe_b64encode:
                continue  # a line of underscores
            text = encode(data).decode()
            assert holds_base64(FORMS[form](text)), content
            assert holds_base64(FORMS[form](text.rstrip("=")[: LIMIT + 1])), content


EXACT: dict[str, Callable[[int], str]] = {
    "unbroken": lambda size: STANDARD[:size],
    "url-safe": lambda size: URL_SAFE[:size],
    "zeros": lambda size: "A" * size,
    "one line break": lambda size: STANDARD[: size // 2] + "\n" + STANDARD[size // 2 : size - 1],
    "lines of 76": lambda size: wrap(STANDARD, 76)[:size],
    "lines of 64 with CRLF": lambda size: wrap(URL_SAFE, 64, "\r\n")[:size],
    "escaped line breaks": lambda size: wrap(STANDARD, 76, "\\n")[:size],
    "words beside it": lambda size: f"Look at this {STANDARD[:size]} and say v2 again",
    "lines of words around it": lambda size: "Look\nat\n" + wrap(STANDARD, 76)[:size] + "\nand then say\nit",
    "data URI": lambda size: f"![it](data:image/png;base64,{STANDARD[:size]})",
    "data URI without upper case": lambda size: f"data:;base64,{'7u' * 2_000}"[: size + 13],
    "JSON in a string": lambda size: json.dumps({"base64": STANDARD[:size], "sha256": "0" * 64}),
    "padding": lambda size: STANDARD[: size - 2] + "==",
    "percent-encoded padding": lambda size: letters(UPPER + LOWER + DIGITS, size - 6) + "%3D%3D",
    "letters of other scripts around it": lambda size: f"это{STANDARD[:size]}😀",
}


@rule("RS-35", "CC-23")
@case("R3")
@pytest.mark.parametrize("form", EXACT)
def test_run_of_2048_characters_passes_and_of_2049_does_not(form: str):
    assert not holds_base64(EXACT[form](LIMIT - 1))
    assert not holds_base64(EXACT[form](LIMIT))
    text = EXACT[form](LIMIT + 1)
    [(start, end)] = find_base64_runs(text)
    assert end - start == LIMIT + 1


def test_each_run_is_found_with_its_padding():
    padded = base64.b64encode(NOISE[:2_000]).decode()
    assert padded.endswith("=")
    text = f"one: {padded} two: {STANDARD[:3_000]}. three: {STANDARD[:1_500]}"
    found = [text[start:end] for start, end in find_base64_runs(text)]
    assert found == [padded, STANDARD[:3_000]]


@rule("RS-62")
@pytest.mark.parametrize(
    "after", ["\n2026 was the year", "\nv2 is next", "\nIt is", "\n42, said he", "\n\nEnd"]
)
def test_words_after_a_run_are_not_part_of_it(after: str):
    run = wrap(STANDARD[:3_000], 60)
    assert find_base64_runs(f"{run}{after}") == [(0, len(run))]


def test_short_runs_are_not_added_up():
    padded = base64.b64encode(NOISE[:1_099]).decode()
    assert not holds_base64(f"{padded}\n{padded}\n{padded}")
    assert not holds_base64(f"{STANDARD[:1_500]}; {STANDARD[:1_500]}")


def repeat(make: Callable[[], str], count: int = 300, separator: str = "\n") -> str:
    return separator.join(make() for _ in range(count))


def camel_case() -> str:
    return "".join(word.capitalize() for word in RANDOM.choices(WORDS, k=8))


def random_uuid() -> str:
    return str(uuid.UUID(bytes=RANDOM.randbytes(16)))


ID = LOWER + UPPER + DIGITS + "_-"
FOLDERS = ["uploads/2026/01", "media/originals", "backups/daily", "exports"]
BASE58 = "".join(sorted({*DIGITS, *UPPER, *LOWER} - {*"0OIl"}))
PUSH_ID = "-" + DIGITS + UPPER + "_" + LOWER
VERSION_ID = UPPER + LOWER + DIGITS + "._"
ORDINARY = {
    "letters": letters(UPPER + LOWER, 4_000),
    "letters in lines": wrap(letters(UPPER + LOWER, 6_000), 60),
    "DNA with many A": letters("AAAACGT", 4_000),
    "proteins in FASTA": repeat(
        lambda: f">sp|P{letters(DIGITS, 5)}|KINASE_HUMAN\n{wrap(letters('ACDEFGHIKLMNPQRSTVWY', 480), 60)}",
        9,
    ),
    "Bitcoin addresses": repeat(lambda: RANDOM.choice("13") + letters(BASE58, RANDOM.choice([32, 33])), 100),
    "Bitcoin addresses, spaces": repeat(lambda: "1" + letters(BASE58, 33), 100, " "),
    "Bitcoin addresses, bech32": repeat(lambda: "bc1q" + letters(LOWER + DIGITS, 58), 100),
    "Firebase push ids": repeat(lambda: "-" + letters(PUSH_ID, 19), 150),
    "Firebase paths": repeat(lambda: f"rooms/-{letters(PUSH_ID, 19)}/messages/-{letters(PUSH_ID, 19)}", 150),
    "S3 version ids": repeat(lambda: letters(VERSION_ID, 32), 100),
    "S3 versions": repeat(lambda: f"{letters(VERSION_ID, 32)}  2026-01-13T12:00:01Z  photos/cat.jpg", 100),
    "DNA": letters("ACGT", 9_000),
    "DNA in lines": ">chr1\n" + wrap(letters("ACGTN", 9_000), 60),
    "DNA, soft-masked": "".join(letters(RANDOM.choice(["ACGT", "acgt"]), 40) for _ in range(200)),
    "protein": letters("ACDEFGHIKLMNPQRSTVWY", 5_000),
    "proteins in lines": wrap(letters("ACDEFGHIKLMNPQRSTVWY", 9_000), 60),
    "UUIDs": repeat(random_uuid),
    "UUIDs, upper case": repeat(random_uuid, separator=" ").upper(),
    "nanoids": repeat(lambda: letters(ID, 21)),
    "nanoids with commas": repeat(lambda: letters(ID, 21), separator=", "),
    "ULIDs": repeat(lambda: "01" + letters(UPPER + DIGITS, 24)),
    "API keys": repeat(lambda: letters(UPPER + LOWER + DIGITS, 40)),
    "ids with a prefix": repeat(lambda: f"cus_{letters(UPPER + LOWER + DIGITS, 44)}"),
    **{
        f"{kind} digests": repeat(lambda kind=kind: hashlib.new(kind, RANDOM.randbytes(9)).hexdigest())
        for kind in ("md5", "sha1", "sha256", "sha384", "sha512")
    },
    "sha256 digests, upper case": repeat(lambda: RANDOM.randbytes(32).hex().upper()),
    "sha256 digests in Base64": repeat(lambda: base64.b64encode(RANDOM.randbytes(32)).decode()),
    "sha256 digests in base64url": repeat(
        lambda: base64.urlsafe_b64encode(RANDOM.randbytes(32)).decode()[:43]
    ),
    "sha384 digests for browsers": repeat(
        lambda: f"sha384-{base64.b64encode(RANDOM.randbytes(48)).decode()}"
    ),
    "list of files with digests": repeat(
        lambda: f"{RANDOM.randbytes(32).hex()}  src/{RANDOM.choice(WORDS)}.py"
    ),
    "commits": repeat(lambda: f"{RANDOM.randbytes(20).hex()} Fix the {camel_case()} of #7"),
    "S3 listing": repeat(
        lambda: f"2026-01-13 12:00:01    123456 {RANDOM.choice(FOLDERS)}/{letters(ID, 21)}/original.jpg"
    ),
    "S3 keys": repeat(lambda: f"{RANDOM.choice(FOLDERS)}/{letters(ID, 21)}/{letters(ID, 21)}"),
    "hex run": NOISE.hex(),
    "hex run, upper case": "0x" + NOISE.hex().upper(),
    "hex dump": "\n".join(f"{at * 16:08X}  {RANDOM.randbytes(16).hex(' ').upper()}" for at in range(200)),
    "long number": letters(DIGITS, 5_000),
    "one letter": "x" * 5_000,
    "lower case and digits": letters(LOWER + DIGITS, 5_000),
    "prose without punctuation": prose(2_000),
    "prose, upper case": prose(2_000).upper(),
    "prose, title case": prose(2_000).title(),
    "long names": repeat(camel_case),
    "long constants": repeat(lambda: "_".join(RANDOM.choices(WORDS, k=9)).upper()),
    "path": "/Library/Ann/Documents/Projects/Easel/src" * 90,
    "paths": repeat(lambda: f"/usr/Share/Locale/{'/'.join(RANDOM.choices(WORDS, k=7))}"),
    "rulers": "-" * 3_000 + "\n" + "=" * 3_000 + "\n" + "_" * 3_000 + "\n" + "+" * 3_000,
    "minified code": "_.Mh=function(aB,b){return aB.Ya&&(cD=b.xE(aB,9),!0)};var iF=k1?null:_.Qa(7,jG);" * 60,
    "certificates": "\n".join(
        f"-----BEGIN CERTIFICATE-----\n{wrap(STANDARD[:size], 64)}\n-----END CERTIFICATE-----"
        for size in (1_598, 1_599, 1_600, 1_601)
    ),
    "JSON": json.dumps([{"id": letters(ID, 21), "userName": "AnnLee", "isActive": True} for _ in range(90)]),
    "tokens with dots": repeat(lambda: f"eyJhbGciOiJIUzI1NiJ9.{URL_SAFE[:300]}.{URL_SAFE[300:343]}", 9, " "),
}


@rule("CC-26")
@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_text_is_not_taken_for_base64(kind: str):
    assert len(ORDINARY[kind]) > LIMIT
    assert find_base64_runs(ORDINARY[kind]) == []


ENCODED = {
    "data URI": f"Look: ![a cat](data:image/png;base64,{STANDARD}) and tell me what it shows.",
    "PGP message": f"-----BEGIN PGP MESSAGE-----\n\n{wrap(STANDARD, 64)}\n=x9Zq\n-----END PGP MESSAGE-----",
    "notebook": json.dumps({"cells": [{"outputs": [{"data": {"image/png": STANDARD + "\n"}}]}]}, indent=1),
    "Kubernetes secret": f"apiVersion: v1\nkind: Secret\ndata:\n  tls.key: {STANDARD}\ntype: Opaque\n",
}


@rule("CC-23")
@pytest.mark.parametrize("kind", ENCODED)
def test_encoded_content_is_found_and_the_words_around_it_are_not(kind: str):
    text = ENCODED[kind]
    [(start, end)] = find_base64_runs(text)
    assert text[start:end].replace("\n", "").replace("\\n", "").rstrip("=") in STANDARD.rstrip("=") + "x9Zq"
    assert end - start >= len(STANDARD) - 8


@rule("CC-23")
@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(1_600, 9_000), st.sampled_from([0, 60, 64, 76]), st.booleans())
def test_random_bytes_are_always_found(seed: int, size: int, width: int, is_url_safe: bool):
    data = random.Random(seed).randbytes(size)
    encoded = (base64.urlsafe_b64encode if is_url_safe else base64.b64encode)(data).decode()
    text = wrap(encoded, width) if width else encoded
    # Without padding, a last line such as "tjgf" is a word like any other.
    assume(not re.fullmatch("[A-Za-z][a-z]*|[0-9]+", text.rpartition("\n")[2]))
    [(start, end)] = find_base64_runs(f"See: {text}. That was it.")
    assert end - start == len(text)


@rule("CC-26")
def test_no_source_file_and_no_page_is_taken_for_base64():
    files = [
        *Path(os.__file__).parent.glob("*.py"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("src/**/*.sql"),
        *ROOT.glob("src/**/*.js"),
        *ROOT.glob("docs/**/*.md"),
    ]
    assert len(files) > 250
    assert [path.name for path in files if holds_base64(path.read_text("utf-8"))] == []


@settings(max_examples=examples(100))
@given(
    st.integers(0, 2**32),
    st.integers(40, 200),
    st.sampled_from(["\n", "\r\n", "\\n", "\n  "]),
    st.text(max_size=60),
)
def test_run_in_lines_of_any_width_is_found(seed: int, width: int, separator: str, text_before: str):
    text = base64.b64encode(random.Random(seed).randbytes(3_000)).decode()
    if width not in (40, 43, 44, 86):  # the lengths of common identifiers
        assert holds_base64(f"{text_before}. {wrap(text, width, separator)}")


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(32, 3_000), st.sampled_from([50, 64, 76, 5_000]))
def test_text_that_ends_in_base64_has_an_open_run(seed: int, size: int, width: int):
    before = "Here it is: "
    run = wrap(base64.b64encode(random.Random(seed).randbytes(size)).decode()[:size], width)
    assert open_run_start(before + run) == len(before)
    for ended in (f"{before}{run}==", f"{before}{run}. ", f"{before}{run}\n\nThat was"):
        assert open_run_start(ended) == len(ended)


SIZE = 1_000_000
HARD = {
    # Texts that would make a backtracking or quadratic search slow.
    "spaces": " " * SIZE,
    "letters and spaces": "a B 3 " * (SIZE // 6),
    "prose": (prose(1_000) + " ") * (SIZE // 5_000),
    "quotes between lines": ("a" * 40 + '"+"') * (SIZE // 43),
    "backslashes": "\\" * SIZE,
    "escapes": "%2B" * (SIZE // 3),
    "data URIs": "base64," * (SIZE // 7),
    "runs within the limit": (STANDARD[:LIMIT] + ".") * (SIZE // LIMIT),
    "runs within the limit among words": (STANDARD[:1_900] + " the end of all words") * (SIZE // 1_921),
    "nanoids": "\n".join(URL_SAFE[at : at + 21] for at in range(0, 7_980, 21)) * (SIZE // 8_300),
    "half surrogate pairs": "\ud800" * (SIZE // 3),
}


@case("R3")
@pytest.mark.parametrize("kind", HARD)
def test_search_time_is_linear_in_the_size_of_the_text(kind: str):
    """Ten times the text must take about ten times the time; a quadratic search takes a hundred times."""
    small = HARD[kind][: SIZE // 10]
    max_seconds = 30 * least_seconds(lambda: holds_base64(small)) + 0.1
    assert least_seconds(lambda: holds_base64(HARD[kind]), enough=max_seconds) < max_seconds


@case("R3")
def test_ten_megabytes_are_found():
    assert holds_base64(base64.b64encode(RANDOM.randbytes(7_500_000)).decode())
