"""Keys of sessions: each session has one, and no two have the same. By their keys they have their folders."""

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
def test_no_two_sessions_share_a_key_whatever_their_ids_look_like():
    assert len({to_session_key(one) for one in IDS}) == len(IDS)


@pytest.mark.parametrize("session_id", IDS)
def test_a_key_leads_back_to_its_session(session_id: str):
    assert session_id_of_key(to_session_key(session_id)) == session_id


@pytest.mark.parametrize(
    "text, is_one",
    [("agent:main:x", True), ("agent:a:b:c", True), ("agent:a", False), ("agent::x", False), ("x", False)],
)
def test_what_a_key_looks_like(text: str, *, is_one: bool):
    assert is_session_key(text) is is_one
