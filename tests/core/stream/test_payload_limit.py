"""Which values are offloaded from events and stored values, what is left, and how they are restored."""

import base64
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from easel.core.stream.base64_runs import holds_base64
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import (
    LIMIT,
    OffloadedValue,
    markers_in,
    mentioned_artifacts,
    offload_event,
    offload_large_values,
    restore_markers,
)
from easel.ids import ArtifactId
from tests.requirements import case, rule
from tests.support.length import examples

RANDOM = random.Random(35)
BASE64 = base64.b64encode(RANDOM.randbytes(9_000)).decode()


def stored(value: Any) -> Any:
    """Return the value as the database returns it."""
    return json.loads(to_json(value))


def size(value: Any) -> int:
    """Return the size in the database: Postgres writes numbers with an exponent out in full."""
    return len(json.dumps(written_out(value), ensure_ascii=False, separators=(",", ":")).encode())


def written_out(value: Any) -> Any:
    """Replace each number with an exponent by an integer of as many digits as it takes."""
    if isinstance(value, float) and "e" in (text := to_json(value)):
        return int("1" * max(len(text), len(f"{Decimal(text):f}")))
    if isinstance(value, dict):
        return {key: written_out(item) for key, item in value.items()}
    return [written_out(item) for item in value] if isinstance(value, (list, tuple)) else value


def by_id(offloaded: tuple[OffloadedValue, ...]) -> dict[ArtifactId, bytes]:
    contents = {value.artifact_id: value.content for value in offloaded}
    assert len(contents) == len(offloaded)
    return contents


def content_of(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else to_json(value).encode()


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(item, (*path, key))


def texts_of(value: Any) -> Iterator[str]:
    """Yield every string, keys included."""
    for path, part in parts(value):
        yield from (text for text in (part, *path[-1:]) if isinstance(text, str))


def assert_marks(marker: Any, value: Any, offloaded: tuple[OffloadedValue, ...]) -> None:
    content = content_of(value)
    digest = hashlib.sha256(content).hexdigest()
    assert marker == {
        "redacted": True,
        "original_size": len(content),
        "sha256": digest,
        "uri": f"/api/artifacts/art_{digest}" + ("" if isinstance(value, str) else "#json"),
    }
    assert by_id(offloaded)[ArtifactId(f"art_{digest}")] == content


# --- events -------------------------------------------------------------------------------------------------


@rule("RS-35", "CC-25")
@case("R3")
def test_event_of_2048_bytes_is_unchanged_and_one_of_2049_is_not():
    for text in ("x" * (LIMIT - 8), "ü" * ((LIMIT - 8) // 2), BASE64[: LIMIT - 8]):
        data = {"t": text}
        assert size(data) == LIMIT
        light, _, offloaded = offload_event(data)
        assert light is data
        assert offloaded == ()
        light, _, offloaded = offload_event({"t": text + "x"})
        assert_marks(light["t"], text + "x", offloaded)


@rule("RS-35", "CC-26")
def test_largest_values_are_offloaded_first_and_only_as_many_as_needed():
    data = {"small": "s" * 300, "large": "l" * 1_500, "middle": ["m" * 1_000, {"n": 1}], "id": "c1"}
    light, _, offloaded = offload_event(data)
    assert_marks(light["large"], data["large"], offloaded)
    assert (light["small"], light["middle"], light["id"]) == (data["small"], data["middle"], "c1")
    light, _, offloaded = offload_event({**data, "more": "n" * 1_450})
    assert_marks(light["large"], data["large"], offloaded)
    assert_marks(light["more"], "n" * 1_450, offloaded)
    assert light["middle"] == data["middle"]


@rule("RS-35", "CC-26")
def test_smallest_sufficient_container_is_offloaded_when_no_leaf_suffices():
    rows = [{"row": row, "of": "table"} for row in range(80)]
    data = {
        "call_id": "c1",
        "result": {"title": "t" * 250, "table": {"rows": rows, "note": "n" * 100}},
        "other": list(range(100)),
    }
    light, _, offloaded = offload_event(data)
    assert_marks(light["result"]["table"]["rows"], rows, offloaded)
    # A value stays if it need not be offloaded, even when its marker is smaller.
    assert light["result"]["title"] == "t" * 250
    assert (light["result"]["table"]["note"], light["other"]) == ("n" * 100, data["other"])


@rule("RS-35")
def test_long_list_that_fits_but_for_one_value_loses_only_that_value():
    data = {"a": [1] * 900 + ["x" * 500]}
    light, _, offloaded = offload_event(data)
    assert light["a"][:-1] == data["a"][:-1]
    assert_marks(light["a"][-1], "x" * 500, offloaded)


@rule("RS-35")
def test_whole_data_is_offloaded_when_no_part_suffices():
    for data in (
        {f"k{at}": "v" * 30 for at in range(100)},
        {"k" * 3_000: 1},
        {"a": list(range(500)), "b": list(range(500))},
    ):
        light, _, offloaded = offload_event(data)
        assert_marks(light, data, offloaded)
        assert restore_markers(stored(light), by_id(offloaded)) == data


@rule("RS-35")
def test_data_offloaded_as_a_whole_is_restored_beside_visibility_and_provenance():
    data = {"k" * 3_000: 1}
    light, _, offloaded = offload_event(data)
    ours = {"visibility": "public", "provenance": {"agent_id": "main"}}
    assert restore_markers(stored({**light, **ours}), by_id(offloaded)) == {**data, **ours}


@rule("RS-35")
def test_size_and_digest_are_those_of_the_stored_text():
    """NUL and half a surrogate pair are stored as U+FFFD."""
    light, _, offloaded = offload_event({"t": "\x00\ud800" * 1_000})
    assert_marks(light["t"], "\ufffd" * 2_000, offloaded)
    value, offloaded = offload_large_values({"t": BASE64 + "\x00"})
    assert_marks(value["t"], BASE64 + "\ufffd", offloaded)


def test_equal_texts_share_one_artifact():
    light, _, offloaded = offload_event({"a": "x" * 3_000, "b": "x" * 3_000})
    assert light["a"] == light["b"]
    assert len(offloaded) == 1


@pytest.mark.parametrize("depth", [100, 150])
def test_deeply_nested_value_is_offloaded_and_restored(depth: int):
    value: Any = "x" * 3_000
    for at in range(depth):
        value = [value] if at % 2 else {"k": value}
    for data in ({"deep": value}, {"deep": [value, list(range(900))]}):
        light, _, offloaded = offload_event(data)
        assert size(light) <= LIMIT
        assert restore_markers(stored(light), by_id(offloaded)) == data


LARGE_VALUES: dict[str, Callable[[], Any]] = {
    "one text": lambda: "x" * 10_000_000,
    "one text that must be repaired": lambda: "\x00" * 2_000_000 + "\ud800" * 2_000_000,
    "Base64": lambda: base64.b64encode(bytes(7_500_000)).decode(),
    "many texts": lambda: ["y" * 2_000] * 5_000,
    "many rows": lambda: [{"id": at, "name": "Ann"} for at in range(60_000)],
    "rows of rows": lambda: [[list(range(100))] * 100] * 20,
    "a wide object": lambda: {f"key {at}": at for at in range(100_000)},
}


@rule("RS-35")
@case("R3")
@pytest.mark.parametrize("what", LARGE_VALUES)
def test_large_value_is_offloaded(what: str):
    data = {"call_id": "c1", "result": LARGE_VALUES[what]()}
    light, _, offloaded = offload_event(data)
    assert size(light) <= LIMIT
    assert light["call_id"] == "c1"
    assert_marks(light["result"], stored(data["result"]), offloaded)


# --- markers ------------------------------------------------------------------------------------------------

FORGED = [
    {"redacted": True},
    {"redacted": True, "original_size": 1, "sha256": "0" * 64, "uri": "/api/artifacts/art_" + "0" * 64},
    {"redacted": True, "original_size": 1, "sha256": "x", "payload": "p" * 5_000},
    {"redacted": True, "~redacted": True, "~~redacted": 1},
    {"~redacted": True},
    {"redacted": False, "~redacted": {"redacted": True}},
]


@rule("CC-26")
@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: {"a": [it, it]}, lambda it: {"a": it, "t": "x" * 5_000}]
)
def test_marker_made_by_a_client_is_escaped_and_not_trusted(
    forged: dict[str, Any], wrap: Callable[[Any], Any]
):
    data = wrap(forged)
    event, _, event_values = offload_event(data)
    for light, offloaded in ((event, event_values), offload_large_values(data)):
        assert markers_in(light) <= set(by_id(offloaded)), "a forged marker was trusted"
        assert restore_markers(stored(light), by_id(offloaded)) == data
    assert size(offload_event(data)[0]) <= LIMIT


@rule("RS-35")
def test_escape_of_a_forged_marker_counts_towards_the_limit():
    data = {"m": {"redacted": True}, "t": ""}
    data["t"] = "x" * (LIMIT - size(data))
    assert size(data) == LIMIT
    light, _, offloaded = offload_event(data)
    assert size(light) <= LIMIT
    assert restore_markers(stored(light), by_id(offloaded)) == data


@rule("RS-35")
@pytest.mark.parametrize(
    "text", ["[" + "1," * 2_000 + "1]", '{"a":"' + "b" * 3_000 + '"}', '"' + "q" * 3_000 + '"', "1" * 3_000]
)
def test_text_that_looks_like_json_is_restored_as_text_and_json_as_json(text: str):
    for data in ({"t": text}, {"t": json.loads(text)}, {"t": text, "u": json.loads(text)}):
        light, _, offloaded = offload_event(data)
        again = restore_markers(stored(light), by_id(offloaded))
        assert again == data
        assert type(again["t"]) is type(data["t"])


def test_only_complete_artifact_ids_are_mentions():
    names = [f"art_{RANDOM.randbytes(32).hex()}" for _ in range(3)]
    assert mentioned_artifacts(
        to_json({"uri": f"/api/artifacts/{names[0]}", "text": f"see\n{names[1]}, {names[1]}", names[2]: 1})
    ) == set(names)
    assert mentioned_artifacts(f"art_{'0' * 63} art_{'G' * 64} start art art_") == frozenset()


def test_artifacts_named_in_an_offloaded_text_are_mentions():
    name = f"art_{RANDOM.randbytes(32).hex()}"
    light, text, offloaded = offload_event({"t": f"{'x' * 3_000} {name}"})
    assert text == to_json(light)
    assert mentioned_artifacts(text, offloaded) == {name, offloaded[0].artifact_id}


# --- stored values ------------------------------------------------------------------------------------------

PLACES: dict[str, Callable[[str], Any]] = {
    "alone": lambda text: text,
    "a field": lambda text: {"image": text},
    "a list": lambda text: [1, text, "two"],
    "deep": lambda text: {"a": [{"b": [[text]]}]},
    "many fields": lambda text: {f"f{at}": {"v": text} for at in range(5)},
    "a key": lambda text: {"a": {text: 1}},
    "a key and its value": lambda text: {text: text},
    "in JSON": lambda text: json.dumps({"a": [text]}),
    "a data: URL": lambda text: {"src": f"data:image/png;base64,{text}"},
}


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("alphabet", ["standard", "url-safe"])
def test_base64_over_the_limit_is_offloaded_from_every_place(place: str, alphabet: str):
    source = BASE64 if alphabet == "standard" else BASE64.replace("+", "-").replace("/", "_")
    for characters in (LIMIT - 1, LIMIT):
        value = PLACES[place](source[:characters])
        assert offload_large_values(value) == (value, ())
    for characters in (LIMIT + 1, 10_000):
        value = PLACES[place](source[:characters])
        light, offloaded = offload_large_values(value)
        assert offloaded
        assert not any(holds_base64(text) for text in texts_of(light))
        assert restore_markers(stored(light), by_id(offloaded)) == value


@rule("RS-35")
def test_only_strings_with_base64_are_offloaded():
    value = {
        "title": "t" * 5_000,
        "image": BASE64,
        "rows": list(range(5_000)),
        "lines": [BASE64[:900], BASE64[900:2_800]],
    }
    light, offloaded = offload_large_values(value)
    assert_marks(light["image"], BASE64, offloaded)
    assert {**light, "image": BASE64} == value
    assert len(offloaded) == 1


@rule("RS-35")
def test_key_with_base64_takes_its_object_along():
    value = {"a": {BASE64: {"b": BASE64}, "c": 1}, "d": 1}
    light, offloaded = offload_large_values(value)
    assert_marks(light["a"], value["a"], offloaded)
    assert (light["d"], len(offloaded)) == (1, 1)


@rule("RS-35")
def test_ten_megabytes_of_base64_in_a_message_are_offloaded():
    text = "See: " + base64.b64encode(bytes(range(256)) * 30_000).decode()
    light, offloaded = offload_large_values(text)
    assert_marks(light, text, offloaded)


# --- any data -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A large value in a short form, so that a failing example can be read."""

    kind: str
    of: Any
    times: int = 0
    sign: str = ""

    def built(self) -> Any:
        match self.kind:
            case "repeated":
                return self.of * self.times
            case "Base64":
                text = BASE64[self.of : self.of + self.times]
                return json.dumps(text) if self.sign == "JSON" else self.sign.join([text[:700], text[700:]])
            case _:
                return [built(self.of)] * self.times


def built(value: Any) -> Any:
    if isinstance(value, Plan):
        return value.built()
    if isinstance(value, dict):
        return {built(key): built(item) for key, item in value.items()}
    return [built(item) for item in value] if isinstance(value, list) else value


SHORT = st.text(st.characters(exclude_categories=()), max_size=12)
LONG = st.builds(Plan, st.just("repeated"), SHORT, st.integers(0, 900))
ENCODED = st.builds(
    Plan,
    st.just("Base64"),
    st.integers(0, 3_000),
    st.integers(1, 5_000),
    st.sampled_from(["", "", "\n", " ", "JSON"]),
)
TEXT = SHORT | LONG | ENCODED
KEY = TEXT | st.sampled_from(["redacted", "~redacted", "~~redacted", "uri", "sha256"])
LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
FORGERY = st.dictionaries(KEY, LEAF, max_size=3).map(lambda more: {"redacted": True, **more})
VALUE = st.recursive(
    LEAF | FORGERY,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(KEY, inner, max_size=6)
        | st.builds(Plan, st.just("many"), inner, st.integers(0, 20))
    ),
    max_leaves=15,
)
DATA = st.dictionaries(KEY, VALUE, max_size=5)
thorough = settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@rule("RS-35", "CC-23", "CC-25", "CC-26")
@thorough
@given(DATA)
@example({"redacted": True, "~redacted": "x" * 3_000})
@example({"a": {"redacted": True, "b": ["x" * 300] * 20}})
def test_any_event_fits_the_limit_and_is_restored(plan: dict[Any, Any]):
    data = built(plan)
    light, text, offloaded = offload_event(data)
    assert text == to_json(light)
    assert size(stored(light)) <= LIMIT
    assert markers_in(stored(light)) == set(by_id(offloaded))
    for value in offloaded:
        assert value.artifact_id == "art_" + hashlib.sha256(value.content).hexdigest()
    assert restore_markers(stored(light), by_id(offloaded)) == stored(data)


def gain(value: Any) -> int:
    return size(value) - size(marker(value))


def marker(value: Any) -> dict[str, Any]:
    content = content_of(value)
    digest = hashlib.sha256(content).hexdigest()
    uri = f"/api/artifacts/art_{digest}{'' if isinstance(value, str) else '#json'}"
    return {"redacted": True, "original_size": len(content), "sha256": digest, "uri": uri}


def with_leaves_offloaded(value: Any, but: tuple[Any, ...] | None = None, path: tuple[Any, ...] = ()) -> Any:
    """Return the value with markers for the container at `but` and each leaf where that is smaller."""
    if path == but:
        return marker(value)
    if isinstance(value, dict):
        return {key: with_leaves_offloaded(item, but, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [with_leaves_offloaded(item, but, (*path, at)) for at, item in enumerate(value)]
    return marker(value) if gain(value) > 0 else value


@rule("RS-35")
@thorough
@given(DATA)
@example(
    {
        "a": Plan("repeated", "x", 400),
        "b": Plan("many", Plan("repeated", "y", 300), 12),
        "c": Plan("many", 7, 20),
    }
)
@example(
    {
        "a": {"b": Plan("many", 1234567, 300), "c": Plan("repeated", "z", 500)},
        "d": Plan("repeated", "w", 1900),
    }
)
def test_offloaded_values_are_those_that_the_rule_names(plan: dict[Any, Any]):
    """Compare with a slow reference: try every container and encode the whole each time."""
    data = stored(built(plan))
    light = offload_event(data)[0]
    if "redacted" in to_json(data):
        return  # escaping has its own test
    if size(data) <= LIMIT:
        assert light is data
        return
    kept = dict(parts(light))
    offloaded = {path: value for path, value in parts(data) if path in kept and is_marked(kept[path])}
    containers = [value for value in offloaded.values() if isinstance(value, (dict, list))]
    leaves = [value for value in offloaded.values() if not isinstance(value, (dict, list))]
    tried = [(size(value), path) for path, value in parts(data) if isinstance(value, (dict, list))]
    assume(len(tried) <= 100)
    would_do = [weight for weight, path in tried if size(with_leaves_offloaded(data, path)) <= LIMIT]
    if size(with_leaves_offloaded(data)) <= LIMIT:
        assert containers == []
    else:
        assert [size(value) for value in containers] == [min(would_do)]
    staying = [
        value
        for path, value in parts(data)
        if path in kept and path not in offloaded and not isinstance(value, (dict, list))
    ]
    if leaves:
        smallest = min(map(size, leaves))
        assert all(size(value) <= smallest or gain(value) <= 0 for value in staying), (
            "a larger value could have been offloaded instead"
        )
        assert size(light) + max(gain(value) for value in leaves if size(value) == smallest) > LIMIT, (
            "a value was offloaded without need"
        )


def is_marked(value: Any) -> bool:
    return isinstance(value, dict) and value.get("redacted") is True


@rule("CC-23", "RS-35")
@thorough
@given(VALUE)
@example([Plan("Base64", 0, 1500), Plan("Base64", 1500, 1500)])
@example(
    {"a": [Plan("Base64", 0, 1500), {"b": Plan("Base64", 0, 3000, "JSON")}, Plan("Base64", 1500, 1500, "\n")]}
)
def test_any_value_is_left_without_base64_over_the_limit_and_is_restored(plan: Any):
    value = built(plan)
    light, offloaded = offload_large_values(value)
    assert markers_in(stored(light)) == set(by_id(offloaded))
    assert restore_markers(stored(light), by_id(offloaded)) == stored(value)
    assert not any(holds_base64(text) for text in texts_of(stored(light)))


# --- ordinary text ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]


def ordinary() -> tuple[list[str], list[str]]:
    """Return short messages, snippets and hashes, and the long texts that they are from."""
    files = [
        *sorted(Path(os.__file__).parent.glob("*.py")),
        *sorted(ROOT.glob("src/**/*.py")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
    long = [path.read_text("utf-8") for path in files]
    short = [text[at : at + 900] for text in long for at in range(0, min(len(text), 6_300), 1_800)]
    for kind in ("md5", "sha1", "sha256", "sha384", "sha512"):
        digests = [hashlib.new(kind, str(at).encode(), usedforsecurity=False) for at in range(100)]
        hexes = [digest.hexdigest() for digest in digests]
        long += [
            "\n".join(hexes),
            "\n".join(hexes).upper(),
            json.dumps(hexes),
            " ".join(f"{kind}:{digest}" for digest in hexes),
        ]
        long.append("\n".join(f"{kind}-{base64.b64encode(digest.digest()).decode()}" for digest in digests))
        short += ["\n".join(hexes[at : at + 12]) for at in range(0, 100, 10)]
    for at in range(200):
        short += [
            f"Please check run {at} and explain why step {at % 7} failed",
            f"$ git show {hashlib.sha256(str(at).encode()).hexdigest()[:40]}",
        ]
    return short, long


@rule("CC-26", "RS-35")
def test_ordinary_messages_snippets_and_hashes_are_unchanged():
    short, long = ordinary()
    events = [{"role": "assistant", "message_id": "msg_1", "text": text} for text in short]
    fitting = [data for data in events if size(data) <= LIMIT]
    assert len(fitting) >= 1_000
    for data in fitting:
        light, _, offloaded = offload_event(data)
        assert light is data
        assert offloaded == ()
    assert sum(len(text) > LIMIT for text in long) > 200
    for text in (*short, *long):
        assert offload_large_values(text) == (text, ())
        value = {"text": text, "lines": text.splitlines()}
        assert offload_large_values(value) == (stored(value), ())
