"""What the audit trail records of a changed canvas. RS-68"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from easel.core.audit.record import ACTIONS
from easel.core.canvas.assets import Asset, asset_key, version_name
from easel.core.canvas.differences import MAX_NAMES, compare_specs, describe_change, describe_creation
from easel.core.stream.json_text import to_json
from easel.ids import OWNER, CanvasId, new_blob_name
from tests.core.action.examples import canvas
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot

GO = {"kind": "tool.call", "tool": "a__Read", "args": {}}
BEFORE: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["a__Read", "a__Grep"], "connect": ["https://a.example.org"]},
    "actions": {"go": GO, "old": GO},
    "refresh": [{"id": "r", "everyMs": 60_000, "action": "go"}],
}
AFTER: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["a__Read", "local__Bash"]},
    "actions": {"go": {**GO, "confirm": "never"}, "new": {**GO, "confirm": "always"}},
    "refresh": [{"id": "r", "everyMs": 5_000, "action": "go"}],
    "writable": ["n"],
}


def asset(path: str, content: bytes) -> Asset:
    name = version_name(new_blob_name(), content)
    return Asset(path, asset_key(OWNER, "main", CanvasId("c"), name, path), len(content))


def with_fields(snapshot: CanvasSnapshot, **fields: Any) -> CanvasSnapshot:
    return replace(snapshot, canvas=replace(snapshot.canvas, **fields))


@rule("RS-68")
def test_changed_spec_is_described_by_what_it_allows_now() -> None:
    assert compare_specs(BEFORE, AFTER) == {
        "allow": {"added": ["local__Bash"], "removed": ["a__Grep"]},
        "confirm": {"go": "never", "new": "always"},
        "connect": {"removed": ["https://a.example.org"]},
        "actions": {"added": ["new"], "removed": ["old"], "changed": ["go"]},
        "refresh": {"changed": ["r"]},
        "members": ["writable"],
    }
    assert compare_specs(BEFORE, BEFORE) == {}


@rule("RS-68")
def test_long_lists_are_cut_and_counted() -> None:
    many = {"toolPolicy": {"allow": [f"a__T{number}" for number in range(100)]}}
    added = compare_specs({}, many)["allow"]["added"]
    assert (len(added), added[-1]) == (MAX_NAMES + 1, f"and {100 - MAX_NAMES} more")


@rule("RS-68")
def test_change_has_a_record_for_each_part_that_changed() -> None:
    kept, page = asset("assets/a.css", b"a"), asset("assets/index.html", b"<h1>")
    before = replace(canvas(), assets=[kept, page, asset("assets/old.js", b"old")])
    new_page = asset("assets/index.html", b"<h2>")
    after = with_fields(
        replace(before, assets=[asset("assets/a.css", b"a"), new_page]),
        title="Other",
        owner_session_key="agent:main:other",
        spec_json=to_json(AFTER),
        revision=9,
        is_accepted=False,
    )
    found = describe_change(before, after)
    assert [difference.action for difference in found] == [
        "canvas.renamed",
        "canvas.owner.changed",
        "canvas.spec.changed",
        "canvas.asset.changed",
        "canvas.asset.changed",
    ]
    assert {difference.action for difference in found} <= ACTIONS.keys()
    assert (found[2].details["revision"], found[2].details["accepted"]) == (9, False)
    assert found[3].details == {"path": "assets/index.html", "digest": new_page.digest, "size": 4}
    assert found[4].details["path"] == "assets/old.js"
    assert found[4].details["deleted"] is True


@rule("RS-68", "RS-59")
def test_acceptance_and_agreement_to_weaker_tools_are_records() -> None:
    open_canvas = canvas(accepted=False)
    [accepted] = describe_change(open_canvas, with_fields(open_canvas, is_accepted=True))
    assert accepted.action == "canvas.accepted"
    known = with_fields(canvas(), tool_hints={"a__Read": 1})
    [agreed] = describe_change(known, with_fields(known, tool_hints={"a__Read": 2}))
    assert (agreed.action, agreed.details["tools"]) == ("canvas.accepted", ["a__Read"])


@rule("RS-68")
def test_new_canvas_is_described_by_its_spec_and_its_assets() -> None:
    made = with_fields(replace(canvas(), assets=[asset("assets/index.html", b"x")]), spec_json=to_json(AFTER))
    created, page = describe_creation(made)
    assert created.details["accepted"] is True
    assert created.details["allow"] == {"added": ["a__Read", "local__Bash"]}
    assert page.action == "canvas.asset.changed"


def test_digest_of_an_asset_is_in_its_blob_key_and_missing_in_older_ones() -> None:
    assert asset("assets/a", b"").digest == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    older = Asset("assets/a", asset_key(OWNER, "main", CanvasId("c"), new_blob_name(), "assets/a"), 1)
    assert older.digest is None
