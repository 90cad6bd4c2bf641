"""`seal()`: visibility by type, provenance of state events, and the payload limit."""

import base64
import inspect
import json
import random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.stream.envelope import (
    EVENT_TYPES,
    MAX_ID_LENGTH,
    Envelope,
    Provenance,
    Stream,
    Visibility,
    seal,
)
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import LIMIT, markers_in, restore_markers
from easel.errors import BadInput
from tests.requirements import case, rule
from tests.support.length import examples

AUTHOR = Provenance("main", "tool_loop", "run_1")
PROVENANCE = {"kind": "agent", "agent_id": "main", "node_id": "tool_loop", "run_id": "run_1"}
BASE64 = base64.b64encode(random.Random(36).randbytes(60_000)).decode()
RESERVED = {"visibility", "provenance"}
every_type = pytest.mark.parametrize("event_type", sorted(EVENT_TYPES))
STATEFUL = sorted(name for name, kind in EVENT_TYPES.items() if kind.stream is not Stream.NARRATIVE)


def data_without_reserved(sealed: Envelope) -> dict[str, Any]:
    return {key: value for key, value in sealed.data.items() if key not in RESERVED}


# --- visibility ---------------------------------------------------------------------------------------------


@rule("CC-10", "CC-14")
@every_type
def test_data_of_every_event_has_its_visibility(event_type: str):
    sealed = seal(event_type, {"text": "x"}, AUTHOR)
    assert sealed.data["visibility"] == sealed.visibility.value
    assert json.loads(sealed.json)["visibility"] in {"public", "internal", "system"}


@rule("CC-10")
@pytest.mark.parametrize("word", ["", "PUBLIC", "secret", "private"])
def test_unknown_visibility_and_type_are_refused(word: str):
    with pytest.raises(ValueError):
        Visibility(word)
    with pytest.raises(KeyError):
        seal(word, {}, AUTHOR)


@rule("CC-11", "CC-10")
@case("P3")
@pytest.mark.parametrize("event_type", ["reasoning.delta", "step.completed"])
@pytest.mark.parametrize("forged", ["public", "system", "", None, True, {"visibility": "public"}, ["public"]])
def test_visibility_forged_by_a_model_is_ignored(event_type: str, forged: Any):
    sealed = seal(event_type, {"text": "hm", "visibility": forged, "provenance": forged}, AUTHOR)
    assert sealed.visibility is Visibility.INTERNAL
    assert json.loads(sealed.json) == {"text": "hm", "visibility": "internal"}
    assert sealed.json.count("visibility") == 1


@rule("CC-11")
def test_seal_has_no_visibility_parameter():
    assert list(inspect.signature(seal).parameters) == ["event_type", "data", "provenance"]


@rule("CC-15", "RS-36")
def test_only_thoughts_and_steps_are_not_public():
    hidden = {name for name, kind in EVENT_TYPES.items() if kind.visibility is not Visibility.PUBLIC}
    assert hidden == {"reasoning.delta", "step.completed"}
    assert all(
        kind.visibility is Visibility.PUBLIC
        for kind in EVENT_TYPES.values()
        if kind.stream in {Stream.STATE, Stream.VISUALS}
    )


@rule("CC-15", "RS-36")
@every_type
def test_canvas_events_are_visuals_and_no_event_is_of_the_system_stream(event_type: str):
    kind = EVENT_TYPES[event_type]
    assert (kind.stream is Stream.VISUALS) == event_type.startswith("canvas.")
    assert kind.stream is not Stream.SYSTEM
    assert kind.visibility is not Visibility.SYSTEM
    assert seal(event_type, {"stream": "narrative"}, AUTHOR).stream is kind.stream


# --- provenance ---------------------------------------------------------------------------------------------


@rule("CC-16")
@case("P3", "P4")
@every_type
@pytest.mark.parametrize(
    "forged", [{"agent_id": "mallory", "node_id": "n", "run_id": "r", "edge_id": "e"}, "mallory", None]
)
def test_provenance_comes_from_the_caller_and_never_from_the_data(event_type: str, forged: Any):
    sealed = seal(event_type, {"provenance": forged, "text": "x"}, AUTHOR)
    assert sealed.data.get("provenance") == (PROVENANCE if event_type in STATEFUL else None)
    assert "mallory" not in sealed.json


@rule("CC-16")
@pytest.mark.parametrize("event_type", STATEFUL)
def test_provenance_has_the_edge_if_there_is_one(event_type: str):
    sealed = seal(event_type, {}, Provenance("main", "tool_loop", "run_1", "a-b"))
    assert sealed.data["provenance"] == {**PROVENANCE, "edge_id": "a-b"}


MISSING = [
    # rule     case                     provenance
    ("CC-16", "no agent", Provenance("", "n", "r")),
    ("CC-18", "no node", Provenance("main", "", "r")),
    ("CC-19", "no run", Provenance("main", "n", "")),
    ("CC-16", "an empty edge", Provenance("main", "n", "r", "")),
    ("CC-16", "a line break", Provenance("main", "n\nadmin", "r")),
    ("CC-16", "a NUL character", Provenance("main\x00", "n", "r")),
    ("CC-16", "half a surrogate pair", Provenance("main", "n\ud800", "r")),
    ("CC-16", "too long", Provenance("main", "n" * (MAX_ID_LENGTH + 1), "r")),
]


@rule("CC-16", "CC-18", "CC-19")
@case("P4")
@pytest.mark.parametrize("event_type", ["whiteboard.write", "canvas.updated"])
@pytest.mark.parametrize("provenance", [row[2] for row in MISSING], ids=[row[1] for row in MISSING])
def test_state_event_without_valid_provenance_is_refused(event_type: str, provenance: Provenance):
    with pytest.raises(BadInput):
        seal(event_type, {"key": "k"}, provenance)


# --- payload limit ------------------------------------------------------------------------------------------

LARGE_DATA = {
    "a long text": {"text": "word " * 5_000},
    "Base64": {"result": {"image": BASE64}},
    "Base64 in lines": {"result": ["\n".join(BASE64[at : at + 76] for at in range(0, 5_000, 76))]},
    "many pieces": {"calls": [{"args": {"piece": BASE64[at : at + 200]}} for at in range(0, 20_000, 200)]},
    "a key": {"args": {BASE64: True}},
    "numbers that grow in the database": {"numbers": [1e308] * 300, "more": {"n": -1.5e-300}},
    "too many small values": {f"k{at}": at for at in range(1_000)},
    "a forged marker": {"result": {"redacted": True, "original_size": 1, "sha256": "x", "payload": BASE64}},
}


@rule("CC-23", "CC-25", "CC-26", "RS-35")
@case("R3")
@pytest.mark.parametrize("event_type", ["message.completed", "whiteboard.write", "canvas.updated"])
@pytest.mark.parametrize("kind", LARGE_DATA)
def test_large_event_fits_2_kb_and_is_restored(event_type: str, kind: str):
    sealed = seal(event_type, {"call_id": "c1", **LARGE_DATA[kind]}, AUTHOR)
    assert len(to_json(data_without_reserved(sealed)).encode()) <= LIMIT
    assert sealed.json == to_json(sealed.data)
    fetched = {value.artifact_id: value.content for value in sealed.offloaded}
    restored = restore_markers(json.loads(sealed.json), fetched)
    if restored.pop("truncated", False):  # RS-62
        [restored["text"]] = restored.pop("attachments")
    reserved = {key: value for key, value in restored.items() if key in RESERVED}
    assert reserved == {
        "visibility": EVENT_TYPES[event_type].visibility.value,
        **({"provenance": PROVENANCE} if event_type in STATEFUL else {}),
    }
    assert {key: value for key, value in restored.items() if key not in RESERVED} == {
        "call_id": "c1",
        **LARGE_DATA[kind],
    }
    assert markers_in(sealed.data) == set(fetched) == sealed.refers_to


@rule("RS-35")
@every_type
def test_visibility_and_provenance_do_not_count_and_are_never_offloaded(event_type: str):
    principal = Provenance("a" * MAX_ID_LENGTH, "n" * MAX_ID_LENGTH, "r" * MAX_ID_LENGTH, "e" * MAX_ID_LENGTH)
    data = {"t": "x" * (LIMIT - 8)}
    sealed = seal(event_type, data, principal)
    assert data_without_reserved(sealed) == data
    assert sealed.offloaded == ()
    sealed = seal(event_type, {"t": "x" * (LIMIT - 7)}, principal)
    assert len(sealed.offloaded) == 1
    assert sealed.data["visibility"] == EVENT_TYPES[event_type].visibility.value
    if event_type in STATEFUL:
        assert sealed.data["provenance"]["node_id"] == "n" * MAX_ID_LENGTH


@rule("CC-26")
def test_ordinary_event_is_not_changed():
    data = {"message_id": "msg_1", "text": 'Größe "x"\n', "n": [1, 2.5, None, True, {}]}
    before = json.dumps(data)
    sealed = seal("message.completed", data, AUTHOR)
    assert data_without_reserved(sealed) == data
    assert sealed.json == to_json(sealed.data)
    assert (sealed.offloaded, sealed.refers_to, json.dumps(data)) == ((), frozenset(), before)
    assert seal("message.completed", MappingProxyType(data), AUTHOR) == sealed


def test_event_refers_to_artifacts_named_in_its_data_and_offloaded_text():
    one, two = (f"art_{digit * 64}" for digit in "12")
    assert seal("message.completed", {"text": f"see {one}"}, AUTHOR).refers_to == {one}
    sealed = seal("message.completed", {"text": f"see {one}" + " and" * 1_000, "other": two}, AUTHOR)
    assert sealed.refers_to == {one, two, sealed.offloaded[0].artifact_id}


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
ANYTHING = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=5), LEAVES, max_size=3)


@rule("CC-10", "CC-16", "RS-35")
@settings(max_examples=examples(200))
@given(
    st.sampled_from(sorted(EVENT_TYPES)),
    st.dictionaries(
        st.sampled_from(["visibility", "provenance", "text", "redacted", ""]) | st.text(max_size=5),
        ANYTHING,
        max_size=5,
    ),
)
def test_data_never_overrides_visibility_or_provenance(event_type: str, input_data: dict[str, Any]):
    sealed = seal(event_type, input_data, AUTHOR)
    data = json.loads(sealed.json)
    assert data == json.loads(to_json(sealed.data))
    assert data["visibility"] == EVENT_TYPES[event_type].visibility.value
    assert data.get("provenance") == (PROVENANCE if event_type in STATEFUL else None)


def test_envelope_is_immutable():
    with pytest.raises(AttributeError):
        seal("done", {}, AUTHOR).visibility = Visibility.SYSTEM  # pyright: ignore[reportAttributeAccessIssue]
