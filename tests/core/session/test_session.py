"""Keys of sessions: each session has one, and no two have the same."""

from __future__ import annotations

import pytest

from easel.core.session.session import is_session_key, session_id_of_key, to_session_key
from tests.requirements import rule

IDS = [
    "x",
    "main",
    "agent:ops:x",
    "agent:main:x",
    "agent:main:agent:main:x",
    "agent:ops",
    "agent:",
    "agent:main:",
    "a:b:c",
]


@rule("SB-02")
def test_session_keys_are_unique():
    assert len({to_session_key(session_id) for session_id in IDS}) == len(IDS)


@pytest.mark.parametrize("session_id", IDS)
def test_session_id_is_restored_from_its_key(session_id: str):
    assert session_id_of_key(to_session_key(session_id)) == session_id


@pytest.mark.parametrize(
    "text, is_one",
    [("agent:main:x", True), ("agent:a:b:c", True), ("agent:a", False), ("agent::x", False), ("x", False)],
)
def test_session_key_format_is_recognised(text: str, *, is_one: bool):
    assert is_session_key(text) is is_one
