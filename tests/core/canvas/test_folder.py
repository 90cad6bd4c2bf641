"""A canvas as files of a folder and back, and the problems reported for invalid files. CV-12, RS-11"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.canvas.folder import (
    DESCRIPTOR,
    SPEC,
    STATE,
    FolderCanvas,
    escape_unprintable,
    find_offloaded,
    format_json,
    from_view,
    identify_canvas,
    is_identical_json,
    parse_json_object,
    read_files,
    record_path,
    to_files,
)
from easel.core.stream.payload_limit import offload_large_values, restore_markers
from easel.errors import BadInput
from easel.ids import CanvasId
from tests.core.canvas.specs import EXAMPLE
from tests.requirements import case, rule

ID = CanvasId("cockpit")
EVENT = "evt_01m7fww9tm26mjv7zba8sndxg6"


def view(**changed: Any) -> dict[str, Any]:
    """Return a result of `canvas.get`."""
    descriptor = {
        "canvasId": "cockpit",
        "agentId": "main",
        "title": "Deploy cockpit",
        "ownerSessionKey": "agent:main:ops",
        "mode": "html",
        "entryAsset": "assets/index.html",
        "createdAt": 1794756191063,
        "updatedAt": 1794756192093,
        "revision": 4,
        "lastSeq": 9,
    }
    parts = {"spec": EXAMPLE, "state": {"service": "api", "n": 1}, **changed}
    return {"descriptor": descriptor | parts.pop("descriptor", {}), **parts}


ASSETS = {"assets/index.html": b"<p>\r\n", "assets/index.js": b"", "assets/img/logo.png": b"\x89PNG\x00\xff"}
RECORD = {"eventId": EVENT, "actionId": "deploy", "status": "completed", "askedAt": 1794756192091}


def canvas_of_view(**changed: Any) -> FolderCanvas:
    return from_view(view(**changed), ASSETS, {})


# --- the layout ---------------------------------------------------------------------------------------------


@rule("CV-12", "RS-11", "CV-14")
def test_canvas_has_exactly_the_files_of_the_layout() -> None:
    canvas = canvas_of_view()
    files = to_files(canvas, view()["descriptor"], [RECORD])
    assert canvas.directory == "agents/main/canvases/cockpit"
    assert set(files) == {DESCRIPTOR, SPEC, STATE, *ASSETS, f"events/1794756192091-{EVENT}.json"}
    assert {path: files[path] for path in ASSETS} == ASSETS, "byte for byte"
    assert json.loads(files[SPEC]) == EXAMPLE
    assert json.loads(files[STATE]) == {"service": "api", "n": 1}
    assert json.loads(files[f"events/1794756192091-{EVENT}.json"]) == RECORD
    descriptor = json.loads(files[DESCRIPTOR])
    assert set(descriptor) == {
        "canvasId",
        "agentId",
        "title",
        "ownerSessionKey",
        "mode",
        "entryAsset",
        "createdAt",
        "updatedAt",
        "revision",
    }


@rule("RS-11")
def test_written_files_read_back_as_the_same_canvas() -> None:
    canvas = canvas_of_view()
    result = read_files(to_files(canvas, view()["descriptor"], [RECORD]), "main", ID)
    assert result.problems == []
    assert result.canvas == canvas


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@rule("RS-11")
@given(st.dictionaries(st.text(max_size=8), values, max_size=5), st.binary(max_size=40))
def test_any_state_and_content_round_trips(state: dict[str, Any], content: bytes) -> None:
    canvas = from_view(view(state=state), {"assets/x": content}, {})
    files = to_files(canvas, view()["descriptor"], [])
    again = read_files(files, "main", ID)
    assert again.problems == []
    assert to_files(again.canvas, view()["descriptor"], []) == files


@rule("RS-11")
def test_folder_contains_offloaded_values() -> None:
    large = base64.b64encode(bytes(range(256)) * 20).decode()
    state = {"picture": large, "redacted": True}
    stored, offloaded = offload_large_values(state)
    result = view(state=stored)
    assert large not in json.dumps(result)
    assert find_offloaded(result) == {value.artifact_id for value in offloaded}
    canvas = from_view(result, {}, {value.artifact_id: value.content for value in offloaded})
    assert canvas.state == state


def test_folder_with_only_a_page_has_no_other_parts() -> None:
    canvas = read_files({"assets/index.html": b"x"}, "main", ID).canvas
    assert (canvas.title, canvas.owner_session_key, canvas.spec, canvas.state) == (None, None, None, None)


@rule("CV-48")
def test_records_of_actions_are_not_imported() -> None:
    result = read_files(
        {SPEC: b"{}", f"events/1-{EVENT}.json": b"forged", "README.md": b"x", "src/a.ts": b"y"}, "main", ID
    )
    assert result.problems == []
    assert result.canvas.assets == {}


# --- invalid files ------------------------------------------------------------------------------------------

DEEP = b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
NOT_JSON = [
    # case, content, message
    ("nothing", b"", "the file is empty"),
    ("half of it", b'{"version": 1,\n  "actions": {', "line 2"),
    ("no UTF-8", b'{"a": "\xff"}', "JSON in UTF-8"),
    ("a key twice", b'{"state": {"a": 1, "a": 2}}', "`a` twice"),
    ("a list", b"[]", "must be an object"),
    ("not a number", b'{"a": NaN}', "must be JSON that can be stored"),
    ("half a character", b'{"a": "\\ud800"}', "must be JSON that can be stored"),
    ("very deep", b'{"a":' + b"[" * 100_000, "must not be nested so deeply"),
]


@pytest.mark.parametrize("path", [SPEC, STATE, DESCRIPTOR])
@pytest.mark.parametrize("name, content, part", NOT_JSON, ids=[row[0] for row in NOT_JSON])
def test_invalid_json_is_reported_with_its_file(path: str, name: str, content: bytes, part: str) -> None:
    result = read_files({path: content, "assets/index.html": b"x"}, "main", ID)
    [problem] = result.problems
    assert problem.startswith(f"{path}: ")
    assert part in problem
    assert problem.count(path) == 1, problem
    assert result.canvas.assets == {"assets/index.html": b"x"}, "the other files are read"
    assert (result.canvas.spec, result.canvas.state, result.canvas.title) == (None, None, None)


def test_byte_order_mark_is_accepted() -> None:
    assert read_files({SPEC: b'\xef\xbb\xbf{"version": 1}'}, "main", ID).canvas.spec == {"version": 1}


INVALID = [
    (SPEC, b'{"version": 2}', "version"),
    (SPEC, b'{"toolpolicy": {}}', "toolpolicy: is unknown"),
    (STATE, DEEP, "nested"),
    (DESCRIPTOR, b'{"canvasId": "other"}', "canvasId is `other`, but must be `cockpit`"),
    (DESCRIPTOR, b'{"agentId": "ops"}', "agentId is `ops`"),
    (DESCRIPTOR, b'{"title": 5}', "title must be text"),
    (DESCRIPTOR, b'{"title": "a\\u0007b"}', "title"),
    (DESCRIPTOR, b'{"ownerSessionKey": "mine"}', "ownerSessionKey"),
]


@pytest.mark.parametrize("path, content, part", INVALID, ids=[f"{row[0]} {row[2]}"[:30] for row in INVALID])
def test_invalid_content_is_reported_with_its_file(path: str, content: bytes, part: str) -> None:
    [problem] = read_files({path: content}, "main", ID).problems
    assert problem.startswith(f"{path}: ")
    assert part in problem


@rule("RS-66")
def test_every_problem_of_a_spec_is_reported() -> None:
    spec = b'{"mod": "html", "a\\u001b[31m": 1, "bindings": {"b": "gone"}}'
    problems = read_files({SPEC: spec}, "main", ID).problems
    assert [problem.split(": ")[1] for problem in problems] == ["mod", r"a\x1b[31m", "bindings.b"]
    assert all(problem.isprintable() for problem in problems)


@rule("CV-47")
@case("U4")
@pytest.mark.parametrize(
    "path",
    [
        "assets/a/../../x",
        "assets/a\\b",
        "assets/%2e%2e/x",
        "assets/-rf",
        "assets/a\x00",
        "assets/\ud800",
        "assets/x ",
    ],
)
def test_invalid_asset_path_is_reported(path: str) -> None:
    result = read_files({path: b"x", "assets/good.txt": b"y"}, "main", ID)
    [problem] = result.problems
    assert problem.startswith(f"{escape_unprintable(path)}: ")
    assert problem.isprintable(), "no control characters for a terminal"


def test_paths_that_differ_only_by_case_are_reported() -> None:
    assert "upper and lower case" in read_files({"assets/A": b"", "assets/a": b""}, "main", ID).problems[0]


def test_all_problems_are_reported_together() -> None:
    result = read_files({SPEC: b"{", STATE: b"[", DESCRIPTOR: b"?", "assets/-": b""}, "main", ID)
    assert {problem.split(": ")[0] for problem in result.problems} == {SPEC, STATE, DESCRIPTOR, "assets/-"}


# --- identity -----------------------------------------------------------------------------------------------


def descriptor_json(**members: Any) -> bytes:
    return json.dumps(members).encode()


IDENTITIES = [
    # case, descriptor, folder, location, --agent, agent id and canvas id
    ("the folder's name alone", None, "cockpit", None, None, ("main", "cockpit")),
    ("the option", None, "cockpit", None, "ops", ("ops", "cockpit")),
    ("the location", None, "x", ("ops", "cockpit"), None, ("ops", "cockpit")),
    (
        "the descriptor",
        descriptor_json(canvasId="cockpit", agentId="ops"),
        "checkout",
        None,
        None,
        ("ops", "cockpit"),
    ),
    (
        "both, the same",
        descriptor_json(canvasId="cockpit", agentId="ops"),
        "x",
        ("ops", "cockpit"),
        "ops",
        ("ops", "cockpit"),
    ),
]


@pytest.mark.parametrize(
    "descriptor, folder, location, agent, expected",
    [row[1:] for row in IDENTITIES],
    ids=[row[0] for row in IDENTITIES],
)
def test_folder_identifies_its_canvas(
    descriptor: bytes | None,
    folder: str,
    location: tuple[str, str] | None,
    agent: str | None,
    expected: tuple[str, str],
) -> None:
    assert identify_canvas(descriptor, folder=folder, location=location, agent_id=agent) == expected


CONTRADICTIONS = [
    (None, "x", ("main", "cockpit"), "ops"),
    (descriptor_json(agentId="ops"), "cockpit", None, "main"),
    (descriptor_json(canvasId=5), "cockpit", None, None),
    (descriptor_json(agentId=["main"]), "cockpit", None, None),
    (descriptor_json(canvasId="../../etc"), "cockpit", None, None),
    (descriptor_json(canvasId=""), "cockpit", None, None),
    (None, "my canvas", None, None),
    (None, "a__b", None, None),
    (None, "cockpit", ("..", "cockpit"), None),
    (b"{", "cockpit", None, None),
]


@pytest.mark.parametrize("descriptor, folder, location, agent", CONTRADICTIONS)
def test_contradicting_or_invalid_ids_are_refused(
    descriptor: bytes | None, folder: str, location: tuple[str, str] | None, agent: str | None
) -> None:
    with pytest.raises(BadInput):
        identify_canvas(descriptor, folder=folder, location=location, agent_id=agent)


# --- an untrusted
# server--------------------------------------------------------------------------------------------------


@rule("CV-47")
def test_path_from_a_server_stays_inside_the_folder() -> None:
    for path in ("assets/../../.bashrc", "/etc/passwd", ".bashrc", "spec.json", "assets/a\\..\\b"):
        with pytest.raises(BadInput):
            from_view(view(), {path: b""}, {})
    for descriptor in ({"canvasId": "../.."}, {"agentId": ".."}, {"agentId": "a/b"}):
        with pytest.raises(BadInput):
            from_view(view(descriptor=descriptor), {}, {})
    for record in (
        {"askedAt": "../x", "eventId": EVENT},
        {"askedAt": 1, "eventId": "../../x"},
        {"askedAt": 1},
        {},
    ):
        with pytest.raises(BadInput):
            record_path(record)


# --- helpers ------------------------------------------------------------------------------------------------


def test_json_comparison_distinguishes_types() -> None:
    assert is_identical_json({"a": 1, "b": [2]}, {"b": [2], "a": 1})
    assert not is_identical_json({"a": 1}, {"a": True})
    assert not is_identical_json({"a": 1}, {"a": 1.0})
    assert not is_identical_json({"a": 0}, {"a": None})


def test_json_is_indented() -> None:
    assert (
        format_json({"b": [1, "é"], "a": {}}) == '{\n  "b": [\n    1,\n    "é"\n  ],\n  "a": {}\n}\n'.encode()
    )
    assert parse_json_object(format_json({"b": [1, "é"], "a": {}}), SPEC) == {"b": [1, "é"], "a": {}}


def test_unprintable_characters_are_escaped() -> None:
    assert escape_unprintable("a\x1b[2Jb\x07é") == "a\\x1b[2Jb\\x07é"


def test_member_named_redacted_is_not_a_marker() -> None:
    state = {
        "doc": {"redacted": True},
        "almost": {"redacted": True, "sha256": "x", "original_size": 1, "uri": "/api/artifacts/x"},
    }
    view = {"spec": {"version": 1}, "state": state}
    assert find_offloaded(view) == frozenset()
    assert restore_markers(state, {}) == state
