"""Which passwords are accepted. RS-76"""

from __future__ import annotations

import unicodedata

import pytest

from easel.core.password.common import LONG
from easel.core.password.rules import MIN_LENGTH, check_password, is_possible_password
from easel.errors import BadInput
from tests.requirements import rule

REFUSED = {
    "": "must not be empty",
    "gU7x-mokra-": "at least 12",
    "é" * 600: "at most 1024 bytes",
    "password1234": "guessed first",
    "Password1234": "guessed first",
    "P@ssw0rd2026!": "guessed first",
    "2026-Welcome!": "guessed first",
    "September-2026": "guessed first",
    "123456789012": "guessed first",
    "210987654321": "guessed first",
    "abcdefghijkl": "guessed first",
    "qwertyuiop[]": "guessed first",
    "1qaz2wsx3edc": "guessed first",
    "aaaaaaaaaaaaaaaa": "guessed first",
    "abcabcabcabcabc": "guessed first",
    "letmeinletmein": "guessed first",
    "correct horse battery staple": "guessed first",
    "Ada-Lovelace-1815": "of your name",
    "lovelace!lovelace": "of your name",
    "ada.king-easel": "of your name",
}
ACCEPTED = ["gU7x-mokra-9ff", "ångström river 7", "ada likes small otters", "            tab1"]


@rule("RS-76")
@pytest.mark.parametrize("password", REFUSED)
def test_password_that_is_short_long_common_or_ones_name_is_refused(password: str) -> None:
    with pytest.raises(BadInput, match=REFUSED[password]) as problem:
        check_password(password, "ada-king", "Ada Lovelace")
    assert not password or password not in problem.value.message


@rule("RS-76")
@pytest.mark.parametrize("password", ACCEPTED)
def test_other_password_is_accepted_as_it_is_hashed(password: str) -> None:
    assert check_password(password, "ada-king", None) == unicodedata.normalize("NFKC", password)


def test_same_characters_from_another_keyboard_are_the_same_password() -> None:
    composed, combined = "résumé of an otter", unicodedata.normalize("NFD", "résumé of an otter")
    assert composed != combined
    assert check_password(composed) == check_password(combined)


def test_text_that_no_password_can_be_is_recognised_before_a_hash() -> None:
    assert [is_possible_password(text) for text in ("", "x", "x" * 1_024, "x" * 1_025, "\ud800")] == [
        False, True, True, False, True,
    ]  # fmt: skip


def test_listed_passwords_are_long_enough_to_be_chosen() -> None:
    assert len(LONG) > 150
    assert {text for text in LONG if len(text) < MIN_LENGTH or text != text.lower()} == set()
