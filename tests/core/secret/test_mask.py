"""The mask of secrets: every form of a value is replaced by its name, also across pieces of a stream."""

from __future__ import annotations

import base64
import html
import json
import os
import random
import re
import shlex
import subprocess
import textwrap
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.audit.redaction import Redaction
from easel.core.secret.mask import ACTIVE, MaskedStream, SecretMask, mask_active
from tests.requirements import rule

VALUES = [
    "plain-value",
    'quo"ted \\ and\ttab',
    "two\nlines of\r\ntext",
    "umlaut ß and 😀 smile",
    "a/b+c d&e=f%20",
    "QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
    "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n" * 20,
    "x" * 32_768,
    "123456789",
]


def forms(value: str) -> dict[str, str]:
    data = value.encode()
    return {
        "raw": value,
        "json": json.dumps(value),
        "json with unicode": json.dumps(value, ensure_ascii=False),
        "json with slashes": json.dumps(value).replace("/", "\\/"),
        "url": quote(value, safe=""),
        "url in lower case": quote(value, safe="").replace("%C3", "%c3").replace("%0A", "%0a"),
        "form": quote_plus(value),
        "base64": base64.b64encode(data).decode(),
        "base64 after one byte": base64.b64encode(b"u" + data).decode(),
        "base64 between others": base64.b64encode(b"user:" + data + b":more").decode(),
        "base64 for urls": base64.urlsafe_b64encode(b"me:" + data).decode(),
        "wrapped base64": base64.encodebytes(data).decode(),
    }


def show(mask: SecretMask, pieces: list[str], pick: random.Random | None = None) -> str:
    """Return what a stream shows of the pieces, of which some wait for others if `pick` says so."""
    stream = MaskedStream(mask)
    shown = [stream.feed(piece, has_more=pick is not None and pick.random() < 0.5) for piece in pieces]
    return "".join([*shown, stream.close()])


@rule("RS-66")
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_every_form_of_a_value_is_replaced(value: str) -> None:
    mask = SecretMask({"NAME": value})
    for kind, form in forms(value).items():
        if kind == "url in lower case" and form.upper() != form:
            continue  # a mixture that no encoder writes
        shown = mask.text(f"before {form} after")
        assert shown.startswith("before "), kind
        assert "[secret NAME]" in shown, kind
        assert value not in shown, kind
        assert max(map(len, shown.split("[secret NAME]"))) < 24, (kind, shown)
    assert mask.text("nothing to replace") == "nothing to replace"


@rule("RS-66")
def test_secret_that_begins_with_another_one_is_replaced_as_a_whole() -> None:
    mask = SecretMask({"SHORT": "token1", "LONG": "token1-extended", "INNER": "extend"})
    assert mask.text("token1 token1-extended extended") == "[secret SHORT] [secret LONG] [secret INNER]ed"
    assert SecretMask({"A": "abcabc"}).text("abcabcabc!") == "[secret A]!"


@rule("RS-66")
def test_index_of_a_value_of_many_short_lines_is_built_without_a_pause_for_each() -> None:
    pauses = list[None]()
    mask = SecretMask({"A": "\n".join(f"{line:06}" for line in range(4_600))}, lambda: pauses.append(None))
    assert mask.text("as 001234 says") == "as [secret A] says"
    assert len(pauses) < 100


@rule("RS-66")
def test_names_of_members_numbers_and_nested_values_are_replaced() -> None:
    mask = SecretMask({"A": "secret value", "PIN": "123456"})
    value: Any = {"key secret value": [1, 1234567, 0.123456, True, None, {"x": "secret value"}], "n": 12}
    assert mask.value(value) == {
        "key [secret A]": [1, "[secret PIN]7", "0.[secret PIN]", True, None, {"x": "[secret A]"}],
        "n": 12,
    }


@rule("RS-66")
def test_secret_at_the_cut_of_a_shortened_output_is_replaced() -> None:
    mask = SecretMask({"A": "abcdefgh12345"})
    cut = "some abcdefg\n… [1000 bytes left out] …\ngh12345 more"
    assert mask.text(cut) == "some [secret A]\n… [1000 bytes left out] …\n[secret A] more"
    plain = "some text\n… [1000 bytes left out] …\nmore"
    assert mask.text(plain) == plain


@rule("RS-66")
def test_long_part_of_a_secret_is_replaced() -> None:
    value = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=60))
    mask = SecretMask({"A": value})
    assert mask.text(f"it begins with {value[:40]}…") == "it begins with [secret A]…"
    assert mask.text(value[10:20]) == value[10:20]


@rule("RS-66")
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_secret_in_pieces_is_replaced(value: str) -> None:
    mask, pick = SecretMask({"NAME": value, "OTHER": f"{value[:6]}different"}), random.Random(7)
    text = f"before {value} between {base64.b64encode(value.encode()).decode()} after {value}"
    for _ in range(5 if len(text) < 5000 else 1):
        pieces, position = list[str](), 0
        while position < len(text):
            size = pick.choice([1, 2, 3, 10, 5000]) if len(text) < 5000 else pick.choice([999, 5000])
            pieces.append(text[position : position + size])
            position += size
        assert (
            show(mask, pieces, pick).replace("\n", "")
            == "before [secret NAME] between [secret NAME] after [secret NAME]"
        )


@rule("RS-66")
@given(
    values=st.lists(st.text("ab", min_size=6, max_size=9), min_size=1, max_size=3),
    pieces=st.lists(st.text("abc ", max_size=12), max_size=12),
)
def test_no_complete_secret_passes_a_stream(values: list[str], pieces: list[str]) -> None:
    names = {f"N{number}": value for number, value in enumerate(values)}
    shown = show(SecretMask(names), pieces)
    assert not [value for value in values if value in shown]
    if not any(value[:1] in piece for value in values for piece in pieces):
        assert shown == "".join(pieces)


@rule("RS-66")
def test_text_that_may_begin_a_secret_is_shown_when_it_does_not_continue() -> None:
    stream = MaskedStream(SecretMask({"A": "token-12345"}))
    assert stream.feed("a tok") == "a "
    assert stream.feed("en ring") == "token ring"
    assert stream.feed(" tok") + stream.close() == " tok"


@rule("RS-66")
def test_beginning_of_a_secret_at_the_end_of_a_stream_is_replaced() -> None:
    assert show(SecretMask({"A": "token-12345"}), ["killed at token-123"]) == "killed at [secret A]"


@rule("RS-66")
def test_active_mask_and_the_redaction_of_named_values_agree() -> None:
    token = ACTIVE.set(SecretMask({"API_TOKEN": "value 1234"}))
    try:
        assert mask_active("API_TOKEN=value 1234") == "API_TOKEN=[secret API_TOKEN]"
    finally:
        ACTIVE.reset(token)
    assert mask_active("value 1234") == "value 1234"
    assert Redaction()("API_TOKEN=[secret API_TOKEN]") == "API_TOKEN=[secret API_TOKEN]"
    assert Redaction()("API_TOKEN=[secret nothing") == "API_TOKEN=[redacted] nothing"


@rule("RS-66")
@pytest.mark.parametrize(
    "value, shown",
    [
        (" value-1 ", "got value-1."),
        ("user=me\npassword=pass-1\n", "password=pass-1"),
        ('a"b$c`d\\e', 'declare -x A="a\\"b\\$c\\`d\\\\e"'),
        ("it's me", "A='it'\\''s me'"),
        ("tab\x1b\tx", "invalid key 'tab\\x1b\\tx'"),
        ("a<b>&c=1", "<p>a&lt;b&gt;&amp;c=1</p>"),
        ("a<b>&c=1", '{"a":"a\\u003cb\\u003e\\u0026c=1"}'),
    ],
    ids=["spaces around", "one line", "double quotes", "single quotes", "Python", "HTML", "JSON of Go"],
)
def test_value_that_a_program_prints_in_another_way_is_replaced(value: str, shown: str) -> None:
    masked = SecretMask({"A": value}).text(shown)
    assert "[secret A]" in masked
    assert max(map(len, re.split(r"\[secret A\]", masked))) <= len('declare -x A="')


@rule("RS-66")
def test_secret_that_overlaps_another_one_is_replaced_in_a_stream() -> None:
    mask = SecretMask({"A": "abcdef", "B": "defghijkl"})
    assert show(mask, ["abcdefgh", "ijkl", "!"]) == "[secret A]!"


@rule("RS-66")
def test_beginning_of_a_secret_that_contains_another_one_is_replaced_at_the_end() -> None:
    mask = SecretMask({"SHORT": "token-1", "LONG": "token-1-and-more"})
    assert show(mask, ["killed at token-1-and-m"]) == "killed at [secret LONG]"


@rule("RS-66")
def test_part_of_a_secret_without_its_beginning_is_replaced_in_pieces() -> None:
    value = "sk-" + "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=40))
    for cut in range(7, 40):
        pieces = [f"without its prefix: {value[3:cut]}", f"{value[cut:]} end"]
        assert show(SecretMask({"A": value}), pieces) == "without its prefix: [secret A] end"


@rule("RS-66")
@pytest.mark.parametrize("value", ["x", "ab", "a" * 31 + "b"], ids=["one", "two", "many"])
def test_secret_of_repeated_characters_takes_linear_time(value: str) -> None:
    def measure(size: int) -> float:
        secret = (value * size)[:size]
        text = f"{secret[:-1]}!{secret}{secret[: size // 2]}\n… [1 bytes left out] …\n{secret[9:]}"
        mask = SecretMask({"A": secret})
        started_at = time.process_time()
        show(mask, [text[at : at + size // 2] for at in range(0, len(text), size // 2)])
        mask.text(text)
        return time.process_time() - started_at

    measure(100)
    # 16 times the length: 16 times as long, while searching each place anew would take 256 times as long.
    assert measure(32_768) < 80 * max(measure(2_048), 0.002)


HARD = 'it\'s "a" $b `c` \\ü\nand+d/e-f_g'


@rule("RS-66")
@pytest.mark.parametrize(
    "shown",
    [
        shlex.quote(HARD),
        shlex.quote(json.dumps({"k": json.dumps({"v": HARD})})),
        json.dumps(json.dumps(json.dumps(HARD))),
        json.dumps(shlex.quote(HARD)),
        quote(json.dumps(HARD)),
        json.dumps(quote(HARD)),
        html.escape(json.dumps(HARD)),
        repr(HARD.encode()),
        base64.b64encode(f"user:{HARD}".encode()).decode(),
        HARD.replace("b", "\x1b[01;31m\x1b[Kb\x1b[m\x1b[K"),
        "\n".join(textwrap.wrap(HARD, 10)),
    ],
    ids=range(11),
)
def test_value_in_nested_quotes_is_replaced_as_a_whole(shown: str) -> None:
    masked = SecretMask({"A": HARD}).text(f"<{shown}>")
    assert len(re.findall(r"[a-zA-Z]", masked.replace("[secret A]", "", 1))) <= len('{"k": "{"v": user:')


@rule("RS-66")
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("value", [HARD, "it's me", "p@$$ w0rd!", VALUES[6]], ids=["hard", "a", "b", "key"])
def test_value_quoted_by_bash_is_replaced(value: str, locale: str) -> None:
    for command in ('printf "%q" "$V"', "set | grep ^V=", "declare -p V", "V=${V@Q}; echo $V"):
        env = {"V": value, "LC_ALL": locale, "PATH": os.environ["PATH"]}
        done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, check=True)
        masked = SecretMask({"A": value}).text(done.stdout.decode(errors="replace"))
        assert "[secret A]" in masked
        assert len(re.findall(r"[a-z]", masked.replace("[secret A]", ""))) <= len("declarexVn"), command
