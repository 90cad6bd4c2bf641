"""Canvas ids that are made of a title, and the alias of an agent's main session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from easel.core.canvas.canvas import MAX_MADE_ID_LENGTH, make_canvas_id, require_canvas_id
from easel.core.session.session import resolve_session_key
from tests.requirements import rule


@rule("RS-67")
@pytest.mark.parametrize(
    "title, made",
    [
        ("Deploy Cockpit!", "deploy-cockpit"),
        ("  Crème brûlée / v2 ", "creme-brulee-v2"),
        ("a__b", "a-b"),
        ("日本", "canvas"),
        ("", "canvas"),
        (None, "canvas"),
    ],
)
def test_canvas_id_is_made_of_the_words_of_the_title(title: str | None, made: str) -> None:
    assert make_canvas_id(title) == made


@rule("RS-67")
@given(some.text(max_size=300), some.sampled_from(["", "0a1b2c3d"]))
def test_made_canvas_id_is_always_valid(title: str, suffix: str) -> None:
    made = make_canvas_id(title, suffix)
    assert require_canvas_id(made) == made
    assert len(made) <= MAX_MADE_ID_LENGTH
    assert made.endswith(suffix)


@rule("RS-67")
def test_main_is_the_main_session_of_the_agent() -> None:
    assert resolve_session_key("main", "painter") == "agent:painter:main"
    assert resolve_session_key("agent:main:work", "painter") == "agent:main:work"
    assert resolve_session_key(None, "painter") is None
