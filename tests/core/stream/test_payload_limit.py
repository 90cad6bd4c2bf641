"""What is moved out of events and values, what is left, and the way back."""

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

from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import (
    LIMIT,
    OffloadedValue,
    light_event,
    light_value,
    lightened,
    markers_in,
    mentioned,
    restored,
)
from easel.ids import ArtifactId
from tests.requirements import case, rule

CHANCE = random.Random(35)
BASE64 = base64.b64encode(CHANCE.randbytes(9_000)).decode()


def stored(value: Any) -> Any:
    """As it comes back from a table."""
    return json.loads(to_json(value))


def size(value: Any) -> int:
    """As it is stored, by whichever database: one of them writes numbers out in full."""
    return len(json.dumps(written_out(value), ensure_ascii=False, separators=(",", ":")).encode())


def written_out(value: Any) -> Any:
    """Each number with an exponent as an integer of as many digits as it takes, to be measured."""
    if isinstance(value, float) and "e" in (text := to_json(value)):
        return int("1" * max(len(text), len(f"{Decimal(text):f}")))
    if isinstance(value, dict):
        return {key: written_out(item) for key, item in value.items()}
    return [written_out(item) for item in value] if isinstance(value, (list, tuple)) else value


def by_id(offloaded: tuple[OffloadedValue, ...]) -> dict[ArtifactId, bytes]:
    assert len({one.artifact_id for one in offloaded}) == len(offloaded)
    return {one.artifact_id: one.content for one in offloaded}


def exact(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else to_json(value).encode()


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(item, (*path, key))


def assert_marks(marker: Any, value: Any, offloaded: tuple[OffloadedValue, ...]) -> None:
    content = exact(value)
    digest = hashlib.sha256(content).hexdigest()
    assert marker == {
        "redacted": True,
        "original_size": len(content),
        "sha256": digest,
        "uri": f"/api/artifacts/art_{digest}" + ("" if isinstance(value, str) else "#json"),
    }
    assert by_id(offloaded)[ArtifactId(f"art_{digest}")] == content


# --- events -----------------------------------------------------------------------------------------------------------


@rule("RS-35", "CC-25")
@case("R3")
def test_an_event_of_2048_bytes_is_left_as_it_is_and_one_of_2049_is_not():
    for text in ("x" * (LIMIT - 8), "ü" * ((LIMIT - 8) // 2), BASE64[: LIMIT - 8]):
        data = {"t": text}
        assert size(data) == LIMIT
        light, offloaded = light_event(data)
        assert light is data
        assert offloaded == ()
        light, offloaded = light_event({"t": text + "x"})
        assert_marks(light["t"], text + "x", offloaded)


@rule("RS-35", "CC-26")
def test_the_largest_values_go_first_and_no_more_than_it_takes():
    data = {"small": "s" * 300, "large": "l" * 1_500, "middle": ["m" * 1_000, {"n": 1}], "id": "c1"}
    light, offloaded = light_event(data)
    assert_marks(light["large"], data["large"], offloaded)
    assert (light["small"], light["middle"], light["id"]) == (data["small"], data["middle"], "c1")
    light, offloaded = light_event({**data, "more": "n" * 1_450})
    assert_marks(light["large"], data["large"], offloaded)
    assert_marks(light["more"], "n" * 1_450, offloaded)
    assert light["middle"] == data["middle"]


@rule("RS-35", "CC-26")
def test_where_no_single_value_helps_the_smallest_container_that_does_is_moved():
    rows = [{"row": row, "of": "table"} for row in range(80)]
    data = {
        "call_id": "c1",
        "result": {"title": "t" * 250, "table": {"rows": rows, "note": "n" * 100}},
        "other": list(range(100)),
    }
    light, offloaded = light_event(data)
    assert_marks(light["result"]["table"]["rows"], rows, offloaded)
    assert (
        light["result"]["title"] == "t" * 250
    )  # a value that needs no moving stays, though its marker is smaller
    assert (light["result"]["table"]["note"], light["other"]) == ("n" * 100, data["other"])


@rule("RS-35")
def test_a_long_list_that_fits_but_for_one_value_loses_only_that():
    data = {"a": [1] * 900 + ["x" * 500]}
    light, offloaded = light_event(data)
    assert light["a"][:-1] == data["a"][:-1]
    assert_marks(light["a"][-1], "x" * 500, offloaded)


@rule("RS-35")
def test_where_only_all_of_it_helps_all_of_it_is_moved():
    for data in (
        {f"k{at}": "v" * 30 for at in range(100)},
        {"k" * 3_000: 1},
        {"a": list(range(500)), "b": list(range(500))},
    ):
        light, offloaded = light_event(data)
        assert_marks(light, data, offloaded)
        assert restored(stored(light), by_id(offloaded)) == data


@rule("RS-35")
def test_data_that_was_moved_as_a_whole_comes_back_beside_visibility_and_provenance():
    data = {"k" * 3_000: 1}
    light, offloaded = light_event(data)
    ours = {"visibility": "public", "provenance": {"agent_id": "main"}}
    assert restored(stored({**light, **ours}), by_id(offloaded)) == {**data, **ours}


@rule("RS-35")
def test_bytes_are_those_of_what_is_stored():
    """NUL and half a surrogate pair are stored as U+FFFD, and it is the stored text that size and digest speak of."""
    light, offloaded = light_event({"t": "\x00\ud800" * 1_000})
    assert_marks(light["t"], "\ufffd" * 2_000, offloaded)
    value, offloaded = light_value({"t": BASE64 + "\x00"})
    assert_marks(value["t"], BASE64 + "\ufffd", offloaded)


def test_one_text_twice_is_one_artifact():
    light, offloaded = light_event({"a": "x" * 3_000, "b": "x" * 3_000})
    assert light["a"] == light["b"]
    assert len(offloaded) == 1


@pytest.mark.parametrize("depth", [100, 150])
def test_deep_nesting_is_no_hindrance(depth: int):
    value: Any = "x" * 3_000
    for at in range(depth):
        value = [value] if at % 2 else {"k": value}
    for data in ({"deep": value}, {"deep": [value, list(range(900))]}):
        light, offloaded = light_event(data)
        assert size(light) <= LIMIT
        assert restored(stored(light), by_id(offloaded)) == data


HEAVY: dict[str, Callable[[], Any]] = {
    "one text": lambda: "x" * 50_000_000,
    "one text that has to be mended": lambda: "\x00" * 9_000_000 + "\ud800" * 9_000_000,
    "Base64": lambda: base64.b64encode(bytes(37_500_000)).decode(),
    "many texts": lambda: ["y" * 2_000] * 25_000,
    "many rows": lambda: [{"id": at, "name": "Ann"} for at in range(300_000)],
    "rows of rows": lambda: [[list(range(100))] * 100] * 100,
    "a wide object": lambda: {f"key {at}": at for at in range(500_000)},
}


@rule("RS-35")
@case("R3")
@pytest.mark.parametrize("what", HEAVY)
def test_fifty_megabytes_are_made_light(what: str):
    data = {"call_id": "c1", "result": HEAVY[what]()}
    light, offloaded = light_event(data)
    assert size(light) <= LIMIT
    assert light["call_id"] == "c1"
    assert_marks(light["result"], stored(data["result"]), offloaded)


# --- markers ----------------------------------------------------------------------------------------------------------

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
def test_a_marker_that_a_client_made_is_escaped_and_not_trusted(
    forged: dict[str, Any], wrap: Callable[[Any], Any]
):
    data = wrap(forged)
    for light, offloaded in (light_event(data), light_value(data)):
        assert markers_in(light) <= set(by_id(offloaded)), "a marker was believed that we did not make"
        assert restored(stored(light), by_id(offloaded)) == data
    assert size(light_event(data)[0]) <= LIMIT


@rule("RS-35")
def test_the_sign_that_escapes_counts_too():
    data = {"m": {"redacted": True}, "t": ""}
    data["t"] = "x" * (LIMIT - size(data))
    assert size(data) == LIMIT
    light, offloaded = light_event(data)
    assert size(light) <= LIMIT
    assert restored(stored(light), by_id(offloaded)) == data


@rule("RS-35")
@pytest.mark.parametrize(
    "text", ["[" + "1," * 2_000 + "1]", '{"a":"' + "b" * 3_000 + '"}', '"' + "q" * 3_000 + '"', "1" * 3_000]
)
def test_a_text_that_looks_like_json_comes_back_as_text_and_json_as_json(text: str):
    for data in ({"t": text}, {"t": json.loads(text)}, {"t": text, "u": json.loads(text)}):
        light, offloaded = light_event(data)
        again = restored(stored(light), by_id(offloaded))
        assert again == data
        assert type(again["t"]) is type(data["t"])


def test_only_what_is_whole_is_found_in_a_text():
    names = [f"art_{CHANCE.randbytes(32).hex()}" for _ in range(3)]
    assert mentioned(
        to_json({"uri": f"/api/artifacts/{names[0]}", "text": f"see\n{names[1]}, {names[1]}", names[2]: 1})
    ) == set(names)
    assert mentioned(f"art_{'0' * 63} art_{'G' * 64} start art art_") == frozenset()


def test_what_a_moved_text_speaks_of_is_still_spoken_of():
    name = f"art_{CHANCE.randbytes(32).hex()}"
    light, text, offloaded = lightened({"t": f"{'x' * 3_000} {name}"})
    assert text == to_json(light)
    assert mentioned(text, offloaded) == {name, offloaded[0].artifact_id}


# --- elsewhere --------------------------------------------------------------------------------------------------------

PLACES: dict[str, Callable[[str], Any]] = {
    "alone": lambda text: text,
    "a field": lambda text: {"image": text},
    "a list": lambda text: [1, text, "two"],
    "deep": lambda text: {"a": [{"b": [[text]]}]},
    "many fields": lambda text: {f"f{at}": {"v": text} for at in range(5)},
    "a key": lambda text: {"a": {text: 1}},
    "a key and its value": lambda text: {text: text},
    "cut up in a list": lambda text: [text[:900], text[900:1_800], text[1_800:]],
    "cut up in a list with other things": lambda text: ["it is", text[:1_000], None, 3, text[1_000:]],
    "cut up in lines": lambda text: {
        "lines": [text[at : at + 76] for at in range(0, len(text) // 76 * 76, 76)]
        + [text[-(len(text) % 76) :]]
    },
    "cut up in fields": lambda text: {"a": text[:1_000], "n": 1, "b": text[1_000:]},
    "cut up in keys": lambda text: {text[:1_000]: 1, text[1_000:]: 2},
    "in JSON": lambda text: json.dumps({"a": [text]}),
    "a data: URL": lambda text: {"src": f"data:image/png;base64,{text}"},
}


def longest(value: Any) -> int:
    """How much of BASE64 is left in a table in one piece, not counting what JSON or anyone puts between."""
    left = "".join(
        char for char in to_json(value).replace("\\n", "").replace("\\t", "") if char in KEPT
    ).translate(TO_STANDARD)
    found = 0
    for at in range(0, len(BASE64) - 512 if len(left) > LIMIT else 0, 512):
        here = left.find(BASE64[at : at + 512])
        if here >= 0:
            found = max(found, alike(left[:here][::-1], BASE64[:at][::-1]) + alike(left[here:], BASE64[at:]))
    return found


def alike(one: str, other: str) -> int:
    return next(
        (at for at, (mine, yours) in enumerate(zip(one, other, strict=False)) if mine != yours),
        min(len(one), len(other)),
    )


KEPT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
TO_STANDARD = str.maketrans("-_", "+/")


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("alphabet", ["standard", "url-safe"])
def test_base64_over_the_limit_leaves_values_wherever_it_stands(place: str, alphabet: str):
    source = BASE64 if alphabet == "standard" else BASE64.replace("+", "-").replace("/", "_")
    for characters in (LIMIT - 1, LIMIT):
        value = PLACES[place](source[:characters])
        assert light_value(value) == (value, ())
    for characters in (LIMIT + 1, 10_000):
        value = PLACES[place](source[:characters])
        light, offloaded = light_value(value)
        assert offloaded
        assert longest(light) <= LIMIT
        assert restored(stored(light), by_id(offloaded)) == value


@rule("RS-35")
def test_only_what_holds_it_is_moved():
    value = {
        "title": "t" * 5_000,
        "image": BASE64,
        "rows": list(range(5_000)),
        "all": [BASE64[:900], BASE64[900:2_800]],
    }
    light, offloaded = light_value(value)
    assert_marks(light["image"], BASE64, offloaded)
    assert_marks(light["all"], value["all"], offloaded)
    assert (light["title"], light["rows"]) == (value["title"], value["rows"])
    assert len(offloaded) == 2


@rule("RS-35")
def test_ten_megabytes_of_base64_in_a_message():
    text = "See: " + base64.b64encode(bytes(range(256)) * 30_000).decode()
    light, offloaded = light_value(text)
    assert_marks(light, text, offloaded)


# --- whatever comes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A large value told in few words: an example that fails can be read."""

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
    max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@rule("RS-35", "CC-23", "CC-25", "CC-26")
@thorough
@given(DATA)
@example({"redacted": True, "~redacted": "x" * 3_000})
@example({"a": {"redacted": True, "b": ["x" * 300] * 20}})
def test_whatever_an_event_says_it_is_light_and_comes_back_whole(plan: dict[Any, Any]):
    data = built(plan)
    light, text, offloaded = lightened(data)
    assert text == to_json(light)
    assert size(light) <= LIMIT
    assert markers_in(stored(light)) == set(by_id(offloaded))
    for one in offloaded:
        assert one.artifact_id == "art_" + hashlib.sha256(one.content).hexdigest()
    assert restored(stored(light), by_id(offloaded)) == stored(data)


def gain(value: Any) -> int:
    return size(value) - size(marker(value))


def marker(value: Any) -> dict[str, Any]:
    content = exact(value)
    digest = hashlib.sha256(content).hexdigest()
    uri = f"/api/artifacts/art_{digest}{'' if isinstance(value, str) else '#json'}"
    return {"redacted": True, "original_size": len(content), "sha256": digest, "uri": uri}


def with_leaves_moved(value: Any, but: tuple[Any, ...] | None = None, path: tuple[Any, ...] = ()) -> Any:
    """As light as moving single values makes it, with the container at `but` moved."""
    if path == but:
        return marker(value)
    if isinstance(value, dict):
        return {key: with_leaves_moved(item, but, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [with_leaves_moved(item, but, (*path, at)) for at, item in enumerate(value)]
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
def test_what_is_moved_is_what_the_rule_says(plan: dict[Any, Any]):
    """Told another way: by trying every container, and encoding the whole each time."""
    data = stored(built(plan))
    light = light_event(data)[0]
    if "redacted" in to_json(data):
        return  # escaping is another test's business
    if size(data) <= LIMIT:
        assert light is data
        return
    kept = dict(parts(light))
    offloaded = {path: value for path, value in parts(data) if path in kept and is_moved(kept[path])}
    containers = [value for value in offloaded.values() if isinstance(value, (dict, list))]
    leaves = [value for value in offloaded.values() if not isinstance(value, (dict, list))]
    tried = [(size(value), path) for path, value in parts(data) if isinstance(value, (dict, list))]
    assume(len(tried) <= 100)
    would_do = [weight for weight, path in tried if size(with_leaves_moved(data, path)) <= LIMIT]
    if size(with_leaves_moved(data)) <= LIMIT:
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
            "a larger one could have been moved instead"
        )
        assert size(light) + max(gain(value) for value in leaves if size(value) == smallest) > LIMIT, (
            "one was moved for nothing"
        )


def is_moved(value: Any) -> bool:
    return isinstance(value, dict) and value.get("redacted") is True


@rule("CC-23", "RS-35")
@thorough
@given(VALUE)
@example([Plan("Base64", 0, 1500), Plan("Base64", 1500, 1500)])
@example(
    {"a": [Plan("Base64", 0, 1500), {"b": Plan("Base64", 0, 3000, "JSON")}, Plan("Base64", 1500, 1500, "\n")]}
)
def test_whatever_a_value_holds_no_base64_over_the_limit_is_left_and_it_comes_back_whole(plan: Any):
    value = built(plan)
    light, offloaded = light_value(value)
    assert markers_in(stored(light)) == set(by_id(offloaded))
    assert restored(stored(light), by_id(offloaded)) == stored(value)
    for path, part in parts(stored(light)):
        for text in (part, *path) if isinstance(part, str) else path:
            assert longest(text) <= LIMIT


# --- what is ordinary -------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]


def ordinary() -> tuple[list[str], list[str]]:
    """A thousand messages, snippets and lists of hashes that fit into an event, and the long texts they were taken from."""
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
            " ".join(f"{kind}:{one}" for one in hexes),
        ]
        long.append("\n".join(f"{kind}-{base64.b64encode(digest.digest()).decode()}" for digest in digests))
        short += ["\n".join(hexes[at : at + 12]) for at in range(0, 100, 10)]
    for at in range(200):
        short += [
            f"Please look at run {at} and tell me why step {at % 7} failed",
            f"$ git show {hashlib.sha256(str(at).encode()).hexdigest()[:40]}",
        ]
    return short, long


@rule("CC-26", "RS-35")
def test_a_thousand_ordinary_messages_snippets_and_hashes_are_left_as_they_are():
    short, long = ordinary()
    events = [{"role": "assistant", "message_id": "msg_1", "text": text} for text in short]
    fitting = [data for data in events if size(data) <= LIMIT]
    assert len(fitting) >= 1_000
    for data in fitting:
        light, offloaded = light_event(data)
        assert light is data
        assert offloaded == ()
    assert sum(len(text) > LIMIT for text in long) > 200
    for text in (*short, *long):
        assert light_value(text) == (text, ())
        value = {"text": text, "lines": text.splitlines()}
        assert light_value(value) == (stored(value), ())
