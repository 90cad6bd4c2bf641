"""`seal()`: every event has the visibility of its type, says who caused it where it must, and is light."""

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

WHO = Provenance("main", "tool_loop", "run_1")
SAID = {"agent_id": "main", "node_id": "tool_loop", "run_id": "run_1"}
BASE64 = base64.b64encode(random.Random(36).randbytes(60_000)).decode()
OURS = {"visibility", "provenance"}
every_type = pytest.mark.parametrize("event_type", sorted(EVENT_TYPES))
STATEFUL = sorted(name for name, kind in EVENT_TYPES.items() if kind.stream is not Stream.NARRATIVE)


def given_part(sealed: Envelope) -> dict[str, Any]:
    return {key: value for key, value in sealed.data.items() if key not in OURS}


# --- visibility -------------------------------------------------------------------------------------------------------


@rule("CC-10", "CC-14")
@every_type
def test_every_event_says_who_may_see_it_in_its_data(event_type: str):
    sealed = seal(event_type, {"text": "x"}, WHO)
    assert sealed.data["visibility"] == sealed.visibility.value
    assert json.loads(sealed.json)["visibility"] in {"public", "internal", "system"}


@rule("CC-10")
@pytest.mark.parametrize("word", ["", "PUBLIC", "secret", "private"])
def test_there_is_no_other_visibility_and_no_other_type(word: str):
    with pytest.raises(ValueError):
        Visibility(word)
    with pytest.raises(KeyError):
        seal(word, {}, WHO)


@rule("CC-11", "CC-10")
@case("P3")
@pytest.mark.parametrize("event_type", ["reasoning.delta", "step.completed"])
@pytest.mark.parametrize("forged", ["public", "system", "", None, True, {"visibility": "public"}, ["public"]])
def test_a_thought_stays_internal_whatever_the_model_says_of_it(event_type: str, forged: Any):
    sealed = seal(event_type, {"text": "hm", "visibility": forged, "provenance": forged}, WHO)
    assert sealed.visibility is Visibility.INTERNAL
    assert json.loads(sealed.json) == {"text": "hm", "visibility": "internal"}
    assert sealed.json.count("visibility") == 1


@rule("CC-11")
def test_nobody_who_seals_can_choose_the_visibility():
    assert list(inspect.signature(seal).parameters) == ["event_type", "data", "provenance"]


@rule("CC-15", "RS-36")
def test_what_is_said_and_what_changes_is_public_and_only_thoughts_and_steps_are_not():
    hidden = {name for name, kind in EVENT_TYPES.items() if kind.visibility is not Visibility.PUBLIC}
    assert hidden == {"reasoning.delta", "step.completed"}
    assert all(
        kind.visibility is Visibility.PUBLIC
        for kind in EVENT_TYPES.values()
        if kind.stream in {Stream.STATE, Stream.VISUALS}
    )


@rule("CC-15", "RS-36")
@every_type
def test_a_visual_is_never_narrative_and_no_log_takes_system_events(event_type: str):
    kind = EVENT_TYPES[event_type]
    assert (kind.stream is Stream.VISUALS) == event_type.startswith("canvas.")
    assert kind.stream is not Stream.SYSTEM
    assert kind.visibility is not Visibility.SYSTEM
    assert seal(event_type, {"stream": "narrative"}, WHO).stream is kind.stream


# --- provenance -------------------------------------------------------------------------------------------------------


@rule("CC-16")
@case("P3", "P4")
@every_type
@pytest.mark.parametrize(
    "forged", [{"agent_id": "mallory", "node_id": "n", "run_id": "r", "edge_id": "e"}, "mallory", None]
)
def test_provenance_is_that_of_the_caller_and_never_that_of_the_data(event_type: str, forged: Any):
    sealed = seal(event_type, {"provenance": forged, "text": "x"}, WHO)
    assert sealed.data.get("provenance") == (SAID if event_type in STATEFUL else None)
    assert "mallory" not in sealed.json


@rule("CC-16")
@pytest.mark.parametrize("event_type", STATEFUL)
def test_the_edge_is_named_where_there_is_one(event_type: str):
    sealed = seal(event_type, {}, Provenance("main", "tool_loop", "run_1", "a-b"))
    assert sealed.data["provenance"] == {**SAID, "edge_id": "a-b"}


MISSING = [
    # rule     says                     provenance
    ("CC-16", "no agent", Provenance("", "n", "r")),
    ("CC-18", "no node", Provenance("main", "", "r")),
    ("CC-19", "no run", Provenance("main", "n", "")),
    ("CC-16", "an empty edge", Provenance("main", "n", "r", "")),
    ("CC-16", "a line break", Provenance("main", "n\nadmin", "r")),
    ("CC-16", "what nobody sees", Provenance("main\x00", "n", "r")),
    ("CC-16", "half a pair", Provenance("main", "n\ud800", "r")),
    ("CC-16", "no end", Provenance("main", "n" * (MAX_ID_LENGTH + 1), "r")),
]


@rule("CC-16", "CC-18", "CC-19")
@case("P4")
@pytest.mark.parametrize("event_type", STATEFUL)
@pytest.mark.parametrize("cited, says, provenance", MISSING, ids=[row[1] for row in MISSING])
def test_a_change_that_nobody_made_is_refused(event_type: str, cited: str, says: str, provenance: Provenance):
    with pytest.raises(BadInput):
        seal(event_type, {"key": "k"}, provenance)


# --- lightness --------------------------------------------------------------------------------------------------------

HEAVY = {
    "a long text": {"text": "word " * 5_000},
    "Base64": {"result": {"image": BASE64}},
    "Base64 in lines": {"result": ["\n".join(BASE64[at : at + 76] for at in range(0, 5_000, 76))]},
    "many pieces": {"calls": [{"args": {"piece": BASE64[at : at + 200]}} for at in range(0, 20_000, 200)]},
    "a key": {"args": {BASE64: True}},
    "numbers that grow when they are stored": {"numbers": [1e308] * 300, "more": {"n": -1.5e-300}},
    "too many small values": {f"k{at}": at for at in range(1_000)},
    "a forged marker": {"result": {"redacted": True, "original_size": 1, "sha256": "x", "payload": BASE64}},
}


@rule("CC-23", "CC-25", "CC-26", "RS-35")
@case("R3")
@every_type
@pytest.mark.parametrize("what", HEAVY)
def test_no_event_is_over_2_kb_and_what_was_moved_is_not_lost(event_type: str, what: str):
    sealed = seal(event_type, {"call_id": "c1", **HEAVY[what]}, WHO)
    assert len(to_json(given_part(sealed)).encode()) <= LIMIT
    assert sealed.json == to_json(sealed.data)
    fetched = {one.artifact_id: one.content for one in sealed.offloaded}
    again = restore_markers(json.loads(sealed.json), fetched)
    ours = {key: value for key, value in again.items() if key in OURS}
    assert ours == {
        "visibility": EVENT_TYPES[event_type].visibility.value,
        **({"provenance": SAID} if event_type in STATEFUL else {}),
    }
    assert {key: value for key, value in again.items() if key not in OURS} == {"call_id": "c1", **HEAVY[what]}
    assert markers_in(sealed.data) == set(fetched) == sealed.refers_to


@rule("RS-35")
@every_type
def test_visibility_and_provenance_do_not_count_and_are_never_moved(event_type: str):
    principal = Provenance("a" * MAX_ID_LENGTH, "n" * MAX_ID_LENGTH, "r" * MAX_ID_LENGTH, "e" * MAX_ID_LENGTH)
    data = {"t": "x" * (LIMIT - 8)}
    sealed = seal(event_type, data, principal)
    assert given_part(sealed) == data
    assert sealed.offloaded == ()
    sealed = seal(event_type, {"t": "x" * (LIMIT - 7)}, principal)
    assert len(sealed.offloaded) == 1
    assert sealed.data["visibility"] == EVENT_TYPES[event_type].visibility.value
    if event_type in STATEFUL:
        assert sealed.data["provenance"]["node_id"] == "n" * MAX_ID_LENGTH


@rule("CC-26")
def test_an_ordinary_event_is_encoded_as_it_was_given_and_not_touched():
    data = {"message_id": "msg_1", "text": 'Größe "x"\n', "n": [1, 2.5, None, True, {}]}
    before = json.dumps(data)
    sealed = seal("message.completed", data, WHO)
    assert given_part(sealed) == data
    assert sealed.json == to_json(sealed.data)
    assert (sealed.offloaded, sealed.refers_to, json.dumps(data)) == ((), frozenset(), before)
    assert seal("message.completed", MappingProxyType(data), WHO) == sealed


def test_an_event_refers_to_what_it_speaks_of_and_to_what_its_moved_text_speaks_of():
    one, two = (f"art_{digit * 64}" for digit in "12")
    assert seal("message.completed", {"text": f"see {one}"}, WHO).refers_to == {one}
    sealed = seal("message.completed", {"text": f"see {one}" + " and" * 1_000, "other": two}, WHO)
    assert sealed.refers_to == {one, two, sealed.offloaded[0].artifact_id}


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
ANYTHING = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=5), LEAVES, max_size=3)


@rule("CC-10", "CC-16", "RS-35")
@settings(max_examples=200)
@given(
    st.sampled_from(sorted(EVENT_TYPES)),
    st.dictionaries(
        st.sampled_from(["visibility", "provenance", "text", "redacted", ""]) | st.text(max_size=5),
        ANYTHING,
        max_size=5,
    ),
)
def test_no_data_speaks_for_the_envelope(event_type: str, data: dict[str, Any]):
    sealed = seal(event_type, data, WHO)
    told = json.loads(sealed.json)
    assert told == json.loads(to_json(sealed.data))
    assert told["visibility"] == EVENT_TYPES[event_type].visibility.value
    assert told.get("provenance") == (SAID if event_type in STATEFUL else None)


def test_an_envelope_cannot_be_changed():
    with pytest.raises(AttributeError):
        seal("done", {}, WHO).visibility = Visibility.SYSTEM  # pyright: ignore[reportAttributeAccessIssue]
