"""Unknown members of a request: warnings, refusals, and hostile names."""

from __future__ import annotations

import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from easel.core.unknown_members import (
    GUARDS,
    KEYS,
    MAX_IGNORED,
    MAX_WARNINGS,
    UnknownMember,
    resembles,
    review_unknown_members,
)
from easel.core.validation import find_nearest
from easel.errors import BadInput
from tests.requirements import rule

KNOWN = ("canvasId", "title", "expectedRevision", "requestId")
LETTERS = st.characters(codec="utf-8", categories=["L", "N"])


def review(*names: str, known: tuple[str, ...] = KNOWN) -> list[str]:
    return review_unknown_members([UnknownMember(name, known) for name in names])


@st.composite
def misspelt(draw: st.DrawFn, words: tuple[str, ...]) -> str:
    """A word with up to two letters changed, any case, and any `_` and `-`."""
    letters = list(draw(st.sampled_from(words)).replace("_", ""))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(letters) - 1))
        match draw(st.sampled_from(("remove", "replace", "add"))):
            case "remove":
                del letters[at]
            case "replace":
                letters[at] = draw(LETTERS.filter(lambda letter: len(letter.casefold()) == 1))
            case _:
                letters.insert(at, draw(LETTERS.filter(lambda letter: len(letter.casefold()) == 1)))
    cased = [draw(st.sampled_from((letter, letter.upper(), letter.lower()))) for letter in letters]
    cased = [new if len(new.casefold()) == 1 else old for new, old in zip(cased, letters, strict=True)]
    return "".join(letter + draw(st.sampled_from(("", "", "_", "-", "__"))) for letter in cased)


@rule("RS-67")
@given(misspelt(GUARDS), st.booleans())
def test_misspelt_check_is_never_ignored(name: str, is_taken: bool) -> None:
    known = KNOWN if is_taken else ("canvasId",)
    if name in known:
        return
    with pytest.raises(BadInput) as refused:
        review("colour", name, known=known)
    assert ("did you mean `expectedRevision`?" in refused.value.message) == is_taken


@rule("RS-67")
@given(misspelt(KEYS), st.integers(0, 3 * MAX_WARNINGS))
def test_misspelt_key_of_a_request_that_has_one_is_never_ignored(name: str, others: int) -> None:
    """Regression: the action ran twice."""
    if name in KNOWN:
        return
    with pytest.raises(BadInput, match="did you mean `requestId`"):
        review(*(f"other{number}" for number in range(others)), name)


@rule("RS-67")
@pytest.mark.parametrize(
    "name, is_refused",
    [
        ("expected_revision", True),
        ("EXPECTED-REVISION", True),
        ("exspectedRevison", True),
        ("expectedVersion", True),
        ("baseRevisionId", True),
        ("base_revision", True),
        ("expectedRevisions42", False),
        ("revision", False),
        ("expected", False),
        ("baseRev", False),
        ("", False),
    ],
)
def test_distance_is_two_letters(name: str, is_refused: bool) -> None:
    assert resembles(name, GUARDS) == is_refused


def distance(first: str, second: str) -> int:
    """Return the edit distance by its definition."""
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        row, last = [i], row
        for j, other in enumerate(second, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (one != other)))
    return row[-1]


@rule("RS-67")
@given(st.data())
def test_resemblance_agrees_with_the_edit_distance(data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(("expectedrevision", "expectedversion", "baserevisionid", "requestid")))
    name = list(word)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, max(0, len(name) - 1)))
        name[at : at + data.draw(st.integers(0, 1))] = data.draw(st.text("abdeinorstv", max_size=1))
    spelt = "".join(name)
    assert resembles(spelt, (word,)) == (distance(spelt, word) <= 2)


@rule("RS-67")
def test_check_that_the_request_does_not_take_is_refused_with_its_members() -> None:
    with pytest.raises(BadInput, match="no such check; its members are canvasId, title"):
        review("expectedRevision", known=("title", "canvasId"))
    with pytest.raises(BadInput, match="did you mean `expected_version`"):
        review("expectedRevision", known=("key", "expected_version"))


@rule("RS-67")
def test_ignored_member_is_named_with_the_nearest_known_name() -> None:
    assert review("canvasID", "tilte", "colour") == [
        "unknown member `canvasID` was ignored; did you mean `canvasId`?",
        "unknown member `tilte` was ignored; did you mean `title`?",
        "unknown member `colour` was ignored.",
    ]
    assert review("idempotencyKey", known=("canvasId",)) == ["unknown member `idempotencyKey` was ignored."]
    assert review_unknown_members([UnknownMember("b64", ("base64",), "assets.logo.png")]) == [
        "unknown member `assets.logo.png.b64` was ignored; did you mean `base64`?"
    ]
    assert find_nearest("revision", ("expectedRevision", "canvasId")) == "expectedRevision"


@rule("RS-67")
def test_hostile_names_give_few_short_warnings() -> None:
    names = ["x" * 1_000_000, "a\x00\n\u202e", *(f"expec{number}sion" for number in range(MAX_IGNORED - 2))]
    warnings = review(*names)
    assert len(warnings) == MAX_WARNINGS + 1
    assert warnings[-1] == f"{len(names) - MAX_WARNINGS} more unknown members were ignored."
    assert max(map(len, warnings)) < 200
    assert all(warning.isprintable() for warning in warnings)
    with pytest.raises(BadInput) as refused:
        review(*names[:2], "expected" + "_" * 1_000_000 + "Revision")
    assert len(refused.value.message) < 300


@rule("RS-67")
def test_too_many_unknown_members_are_refused() -> None:
    with pytest.raises(BadInput, match=f"101 members are unknown; at most {MAX_IGNORED} are ignored"):
        review(*(f"other{number}" for number in range(101)))


@rule("RS-67")
def test_time_grows_in_proportion_to_the_length_of_a_name() -> None:
    def seconds(name: str) -> float:
        times: list[float] = []
        for _ in range(5):
            began = time.process_time()
            review(name)
            times.append(time.process_time() - began)
        return min(times)

    long: dict[int, Any] = {size: "expected" * (size // 8) for size in (500_000, 2_000_000)}
    assert seconds(long[2_000_000]) < 8 * 4 * seconds(long[500_000]) + 0.01
