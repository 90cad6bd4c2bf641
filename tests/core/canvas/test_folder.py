"""A canvas as the files of a folder, and back: the same bytes, and a message with the file's name for everything else. CV-12, RS-11"""

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
    to_files,
    from_view,
    find_offloaded,
    identify_canvas,
    is_identical_json,
    parse_json_object,
    escape_unprintable,
    format_json,
    read_files,
    record_path,
)
from easel.core.stream.payload_limit import offload_large_values, restored
from easel.errors import BadInput
from easel.ids import CanvasId
from tests.core.canvas.specs import EXAMPLE
from tests.requirements import case, rule

ID = CanvasId("cockpit")
EVENT = "evt_01m7fww9tm26mjv7zba8sndxg6"


def view(**changed: Any) -> dict[str, Any]:
    """As `canvas.get` answers."""
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
    given_parts = {"spec": EXAMPLE, "state": {"service": "api", "n": 1}, **changed}
    return {"descriptor": descriptor | given_parts.pop("descriptor", {}), **given_parts}


ASSETS = {"assets/index.html": b"<p>\r\n", "assets/index.js": b"", "assets/img/logo.png": b"\x89PNG\x00\xff"}
RECORD = {"eventId": EVENT, "actionId": "deploy", "status": "completed", "askedAt": 1794756192091}


def snapshot(**changed: Any) -> FolderCanvas:
    return from_view(view(**changed), ASSETS, {})


# --- the layout -----------------------------------------------------------------------------------------------------------


@rule("CV-12", "RS-11", "CV-14")
def test_a_canvas_has_exactly_the_files_of_the_layout() -> None:
    canvas = snapshot()
    files = to_files(canvas, view()["descriptor"], [RECORD])
    assert canvas.place == "agents/main/canvases/cockpit"
    assert set(files) == {DESCRIPTOR, SPEC, STATE, *ASSETS, f"events/1794756192091-{EVENT}.json"}
    assert {path: files[path] for path in ASSETS} == ASSETS, "byte for byte"
    assert json.loads(files[SPEC]) == EXAMPLE
    assert json.loads(files[STATE]) == {"service": "api", "n": 1}
    assert json.loads(files[f"events/1794756192091-{EVENT}.json"]) == RECORD
    described = json.loads(files[DESCRIPTOR])
    assert set(described) == {
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
def test_what_was_written_reads_back_as_the_same_canvas() -> None:
    canvas = snapshot()
    reading = read_files(to_files(canvas, view()["descriptor"], [RECORD]), "main", ID)
    assert reading.problems == []
    assert reading.canvas == canvas


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
def test_any_state_and_any_bytes_come_back_as_the_same_files(state: dict[str, Any], content: bytes) -> None:
    canvas = from_view(view(state=state), {"assets/x": content}, {})
    files = to_files(canvas, view()["descriptor"], [])
    again = read_files(files, "main", ID)
    assert again.problems == []
    assert to_files(again.canvas, view()["descriptor"], []) == files


@rule("RS-11")
def test_a_folder_holds_the_values_that_the_server_keeps_as_artifacts() -> None:
    """Imported as a marker it would be somebody's own text, and on another server it would lead nowhere."""
    heavy = base64.b64encode(bytes(range(256)) * 20).decode()
    state = {"picture": heavy, "redacted": True}
    light, offloaded = offload_large_values(state)
    shown = view(state=light)
    assert heavy not in json.dumps(shown)
    assert find_offloaded(shown) == {one.artifact_id for one in offloaded}
    canvas = from_view(shown, {}, {one.artifact_id: one.content for one in offloaded})
    assert canvas.state == state


def test_a_folder_of_a_page_alone_speaks_of_nothing_else() -> None:
    canvas = read_files({"assets/index.html": b"x"}, "main", ID).canvas
    assert (canvas.title, canvas.owner_session_key, canvas.spec, canvas.state) == (None, None, None, None)


@rule("CV-48")
def test_records_of_actions_are_not_read() -> None:
    reading = read_files(
        {SPEC: b"{}", f"events/1-{EVENT}.json": b"forged", "README.md": b"x", "src/a.ts": b"y"}, "main", ID
    )
    assert reading.problems == []
    assert reading.canvas.assets == {}


# --- what is not so -------------------------------------------------------------------------------------------------------

DEEP = b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
NOT_JSON = [
    # says                     content                            the message has
    ("nothing", b"", "it is empty"),
    ("half of it", b'{"version": 1,\n  "actions": {', "line 2"),
    ("no UTF-8", b'{"a": "\xff"}', "not UTF-8"),
    ("a key twice", b'{"state": {"a": 1, "a": 2}}', "`a` twice"),
    ("a list", b"[]", "must be an object"),
    ("not a number", b'{"a": NaN}', "not JSON that can be stored"),
    ("half a character", b'{"a": "\\ud800"}', "not JSON that can be stored"),
    ("very deep", b'{"a":' + b"[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize("path", [SPEC, STATE, DESCRIPTOR])
@pytest.mark.parametrize("says, content, part", NOT_JSON, ids=[row[0] for row in NOT_JSON])
def test_what_is_not_json_is_told_with_its_file(path: str, says: str, content: bytes, part: str) -> None:
    reading = read_files({path: content, "assets/index.html": b"x"}, "main", ID)
    [problem] = reading.problems
    assert problem.path == path
    assert part in str(problem)
    assert str(problem).count(path) == 1, str(problem)
    assert reading.canvas.assets == {"assets/index.html": b"x"}, "the rest can be read"
    assert (reading.canvas.spec, reading.canvas.state, reading.canvas.title) == (None, None, None)


def test_a_byte_order_mark_is_no_fault() -> None:
    assert read_files({SPEC: b'\xef\xbb\xbf{"version": 1}'}, "main", ID).canvas.spec == {"version": 1}


WRONG = [
    (SPEC, b'{"version": 2}', "version"),
    (SPEC, b'{"toolpolicy": {}}', "toolpolicy: is unknown"),
    (STATE, DEEP, "nested"),
    (DESCRIPTOR, b'{"canvasId": "other"}', "canvasId is `other`, but this is `cockpit`"),
    (DESCRIPTOR, b'{"agentId": "ops"}', "agentId is `ops`"),
    (DESCRIPTOR, b'{"title": 5}', "title is text"),
    (DESCRIPTOR, b'{"title": "a\\u0007b"}', "title"),
    (DESCRIPTOR, b'{"ownerSessionKey": "mine"}', "ownerSessionKey"),
]


@pytest.mark.parametrize("path, content, part", WRONG, ids=[f"{row[0]} {row[2]}"[:30] for row in WRONG])
def test_what_no_server_takes_is_told_before_it_is_asked(path: str, content: bytes, part: str) -> None:
    [problem] = read_files({path: content}, "main", ID).problems
    assert problem.path == path
    assert part in problem.says


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
def test_a_file_that_can_be_no_asset_is_named(path: str) -> None:
    reading = read_files({path: b"x", "assets/good.txt": b"y"}, "main", ID)
    assert [problem.path for problem in reading.problems] == [path]
    assert str(reading.problems[0]).isprintable(), "a terminal shows it and obeys none of it"
    assert list(reading.canvas.assets) == ["assets/good.txt"]


def test_names_that_differ_by_case_only_are_told() -> None:
    assert "upper and lower case" in read_files({"assets/A": b"", "assets/a": b""}, "main", ID).problems[0].says


def test_everything_that_is_wrong_is_told_at_once() -> None:
    reading = read_files({SPEC: b"{", STATE: b"[", DESCRIPTOR: b"?", "assets/-": b""}, "main", ID)
    assert {problem.path for problem in reading.problems} == {SPEC, STATE, DESCRIPTOR, "assets/-"}


# --- which canvas it is ---------------------------------------------------------------------------------------------------


def said(**members: Any) -> bytes:
    return json.dumps(members).encode()


WHO = [
    # says                               descriptor                                       folder   place             --agent  is
    ("the folder's name alone", None, "cockpit", None, None, ("main", "cockpit")),
    ("the option", None, "cockpit", None, "ops", ("ops", "cockpit")),
    ("its place", None, "x", ("ops", "cockpit"), None, ("ops", "cockpit")),
    ("its descriptor", said(canvasId="cockpit", agentId="ops"), "checkout", None, None, ("ops", "cockpit")),
    (
        "both, agreed",
        said(canvasId="cockpit", agentId="ops"),
        "x",
        ("ops", "cockpit"),
        "ops",
        ("ops", "cockpit"),
    ),
]


@pytest.mark.parametrize(
    "descriptor, folder, place, agent, expected", [row[1:] for row in WHO], ids=[row[0] for row in WHO]
)
def test_a_folder_says_whose_canvas_it_is(
    descriptor: bytes | None,
    folder: str,
    place: tuple[str, str] | None,
    agent: str | None,
    expected: tuple[str, str],
) -> None:
    assert identify_canvas(descriptor, folder=folder, place=place, agent_id=agent) == expected


CONTRADICTIONS = [
    (said(canvasId="other"), "x", ("main", "cockpit"), None),
    (said(agentId="ops"), "x", ("main", "cockpit"), None),
    (said(agentId="ops"), "cockpit", None, "main"),
    (said(canvasId=5), "cockpit", None, None),
    (said(agentId=["main"]), "cockpit", None, None),
    (said(canvasId="../../etc"), "cockpit", None, None),
    (said(canvasId=""), "cockpit", None, None),
    (None, "my canvas", None, None),
    (None, "a__b", None, None),
    (None, "cockpit", ("..", "cockpit"), None),
    (b"{", "cockpit", None, None),
]


@pytest.mark.parametrize("descriptor, folder, place, agent", CONTRADICTIONS)
def test_a_folder_that_contradicts_itself_is_refused(
    descriptor: bytes | None, folder: str, place: tuple[str, str] | None, agent: str | None
) -> None:
    with pytest.raises(BadInput):
        identify_canvas(descriptor, folder=folder, place=place, agent_id=agent)


# --- a server that lies ---------------------------------------------------------------------------------------------------


@rule("CV-47")
def test_no_name_from_a_server_leads_out_of_the_folder() -> None:
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


# --- small things ---------------------------------------------------------------------------------------------------------


def test_sameness_is_that_of_json() -> None:
    assert is_identical_json({"a": 1, "b": [2]}, {"b": [2], "a": 1})
    assert not is_identical_json({"a": 1}, {"a": True})
    assert not is_identical_json({"a": 1}, {"a": 1.0})
    assert not is_identical_json({"a": 0}, {"a": None})


def test_json_is_written_as_people_edit_it() -> None:
    assert format_json({"b": [1, "é"], "a": {}}) == '{\n  "b": [\n    1,\n    "é"\n  ],\n  "a": {}\n}\n'.encode()
    assert parse_json_object(format_json({"b": [1, "é"], "a": {}}), SPEC) == {"b": [1, "é"], "a": {}}


def test_a_name_on_a_terminal_is_no_command() -> None:
    assert escape_unprintable("a\x1b[2Jb\x07é") == "a\\x1b[2Jb\\x07é"


def test_a_member_called_redacted_is_no_marker_of_something_that_was_moved() -> None:
    """A patch may have put it there, member by member."""
    state = {
        "doc": {"redacted": True},
        "almost": {"redacted": True, "sha256": "x", "original_size": 1, "uri": "/api/artifacts/x"},
    }
    view = {"spec": {"version": 1}, "state": state}
    assert find_offloaded(view) == frozenset()
    assert restored(state, {}) == state
