"""The alphabet of plain values. RS-71"""

import pytest

from easel.core.shell.plain import MAX_LENGTH, find_plain_problem
from tests.requirements import rule

GOOD = [
    "api",
    "7",
    "1.2.7",
    "a,b",
    "a:b",
    "x/y",
    "a@b",
    "v1.4.2-rc.1",
    "https://example.org/a",
    "left-pad@1.3.0",
    "...",
    "Ärzte",
    "é漢字",
    "A\u0301",
    "ᄒ\u1161",
    "क्षि",
    "x" * MAX_LENGTH,
    "_",
    ".env",
    "a/.b",
    ":",
]
BAD = [
    "",
    "x" * (MAX_LENGTH + 1),
    "a b",
    "a\n",
    "$x",
    "`x`",
    "a;b",
    "a&b",
    "a|b",
    "a>b",
    "a*",
    "a?",
    "[a]",
    "{a}",
    "a!",
    "a#b",
    "a%b",
    "a^b",
    "~a",
    "a\\",
    "'",
    '"',
    "(a)",
    "a\0",
    "-a",
    "+a",
    "/a",
    "@a",
    "=a",
    ",a",
    ".",
    "..",
    "a/..",
    "./a",
    "a/../b",
    "a:../b",
    "a,..",
    "a=b",
    "\u0301",
    "1\u0301",
    "_\u0301",
    "ʰ",
    "aʼ",
    "ǃ",
    "aǀ",
    "a\u3164",
    "\u115f",
    "\uffa0",
    "ﷺ",
    "²",
    "a\u200b",
    "a\u00a0b",
    "a\u202eb",
    "😀",
    "٣",
    "a\ud800",
]


@rule("RS-71")
@pytest.mark.parametrize("value", GOOD)
def test_plain_value(value: str) -> None:
    assert find_plain_problem(value) is None


@rule("RS-71")
@pytest.mark.parametrize("value", BAD, ids=ascii)
def test_value_that_is_not_plain(value: str) -> None:
    assert find_plain_problem(value)


@rule("RS-71")
def test_equals_sign_needs_literal_text_before_it_and_a_dash_the_option() -> None:
    assert find_plain_problem("a=b", may_assign=True) is None
    assert find_plain_problem("=b", may_assign=True)
    assert find_plain_problem("a=../b", may_assign=True)
    assert find_plain_problem("-a", may_be_option=True) is None
    assert find_plain_problem("--to=x", may_be_option=True)
