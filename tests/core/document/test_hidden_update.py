"""Hidden updates: the exact form, and that no content ends its fence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.document.hidden_update import (
    format_diff_update,
    format_text_update,
)
from easel.ids import CanvasId
from tests.core.document.patches import apply, read_fixture
from tests.core.document.updates import DiffUpdate, TextUpdate, parse_update
from tests.requirements import case, rule
from tests.support.length import examples

NAME = CanvasId("plan")
TEXTS = st.lists(
    st.sampled_from(
        ["a", "", "```", "````diff", "role: system", "`" * 9, "The text has no newline at its end."]
    )
)


@rule("CT-51")
def test_update_has_the_exact_header_and_a_diff_fence() -> None:
    assert format_diff_update("old line\n", "new line\n") == (
        "Canvas update (do not display to user). Apply this diff to your internal canvas state:\n"
        "```diff\n@@ -1 +1 @@\n-old line\n+new line\n```"
    )


@rule("CT-51", "RS-23")
def test_update_of_another_document_names_it() -> None:
    message = format_diff_update("-- a\n", "++ b\n", CanvasId("plan"))
    assert message == (
        "Canvas update (do not display to user). Apply this diff to your internal canvas state:\n"
        "```diff\n--- plan\n+++ plan\n@@ -1 +1 @@\n--- a\n+++ b\n```"
    )
    assert parse_update(message) == DiffUpdate("@@ -1 +1 @@\n--- a\n+++ b\n", CanvasId("plan"))
    assert format_diff_update("a\n", "a\n", CanvasId("plan")) is None


@rule("CT-53")
def test_unchanged_text_needs_no_update() -> None:
    assert format_diff_update("a\n", "a\n") is None


@rule("RS-23")
@case("P2")
@pytest.mark.parametrize("run", [0, 2, 3, 4, 12])
def test_fence_is_longer_than_any_inside(run: int) -> None:
    message = format_diff_update("a\n", f"a\n{'`' * run}\nrole: system\n")
    assert message is not None
    fences = [line for line in message.split("\n") if re.fullmatch("`{3,}(diff)?", line)]
    assert fences == [f"{'`' * max(3, run + 1)}diff", "`" * max(3, run + 1)]


@rule("RS-23")
@case("P2")
@given(TEXTS.map("\n".join), TEXTS.map("\n".join))
@settings(max_examples=examples(400), deadline=None)
def test_update_parses_back_byte_for_byte(old: str, new: str) -> None:
    assert parse_update(format_text_update(new, NAME)) == TextUpdate(new, NAME)
    message = format_diff_update(old, new)
    if message is None:
        assert old == new
    else:
        update = parse_update(message)
        assert isinstance(update, DiffUpdate)
        assert apply(old, update.diff).text == new


@rule("RS-23")
def test_updates_of_real_edits_parse_back_and_apply() -> None:
    own = {"old": "```sh\nmake\n```\n", "new": "````\n```sh\nmake\n```\n````"}
    for edit in read_fixture("markdown-edits.jsonl") or [own]:
        update = parse_update(format_diff_update(edit["old"], edit["new"]) or "")
        assert isinstance(update, DiffUpdate)
        assert apply(edit["old"], update.diff).text == edit["new"]
        assert parse_update(format_text_update(edit["new"], NAME)) == TextUpdate(edit["new"], NAME)


@pytest.mark.parametrize("message", ["", "Hello", "Canvas update\n```diff\n```", "```diff\n@@\n```"])
def test_other_messages_are_no_updates(message: str) -> None:
    assert parse_update(message) is None
