"""When a change of a canvas makes a version, and how the difference is described."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.versions import MAX_PARTS, Part, compare_specs, find_replaced
from easel.ids import OWNER, CanvasId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC: dict[str, Any] = {"version": 1, "actions": {"a": {"kind": "x"}}}


def snapshot(*assets: Asset) -> CanvasSnapshot:
    canvas = Canvas(
        account_id=OWNER,
        canvas_id=CanvasId("c"),
        agent_id="main",
        title="Title",
        owner_session_key=None,
        spec_json=msgspec.json.encode(SPEC).decode(),
        state={},
        revision=1,
        last_seq=1,
        spec_revision=1,
        is_accepted=True,
        created_at=NOW,
        updated_at=NOW,
    )
    return CanvasSnapshot(canvas, assets)


def test_change_of_state_title_or_acceptance_alone_makes_no_version() -> None:
    for change in (
        Change(events=[], state={"n": 1}),
        Change(events=[], title="Other"),
        Change(events=[], is_accepted=True),
        Change(events=[], spec={"actions": {"a": {"kind": "x"}}, "version": 1}),
        Change(events=[], removed=["assets/none"]),
    ):
        assert find_replaced(snapshot(), change) is None


def test_only_replaced_parts_are_kept() -> None:
    old = Asset("assets/a", "key/a", 1)
    put = [Asset("assets/a", "key/a2", 1), Asset("assets/b", "key/b", 1)]
    replaced = find_replaced(snapshot(old), Change(events=[], put=put, title="Other"))
    assert replaced is not None
    assert (replaced.has_spec, replaced.assets) == (False, {"assets/a": old, "assets/b": None})
    assert replaced.differences.parts == [
        Part("title", "changed"),
        Part("assets/a", "changed"),
        Part("assets/b", "added"),
    ]


def test_many_differences_are_counted() -> None:
    put = [Asset(f"assets/{n}", f"key/{n}", 1) for n in range(MAX_PARTS + 7)]
    replaced = find_replaced(snapshot(), Change(events=[], put=put))
    assert replaced is not None
    assert (len(replaced.differences.parts), replaced.differences.more) == (MAX_PARTS, 7)
    assert len(replaced.assets) == MAX_PARTS + 7


def test_specs_are_compared_by_member_and_by_action() -> None:
    after = {
        "version": 1,
        "actions": {"b": {}},
        "toolPolicy": {"allow": ["t"]},
        "bindings": {},
        "writable": True,
    }
    assert compare_specs({**SPEC, "writable": 1}, after) == [
        Part("spec.actions.a", "removed"),
        Part("spec.actions.b", "added"),
        Part("spec.writable", "changed"),
        Part("spec.toolPolicy.allow", "added"),
        Part("spec.bindings", "added"),
    ]
