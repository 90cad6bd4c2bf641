"""The stored size of an event: Postgres writes numbers with an exponent out in full."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import LIMIT, offload_event, offload_large_values, restore_markers
from easel.core.stream.weight import added_by_storing, added_to_number
from tests.requirements import case, rule


def stored_size(data: dict[str, Any]) -> int:
    text = to_json(data)
    return len(text.encode()) + added_by_storing(text, data.values())


WRITTEN = [
    # number, as Postgres writes it
    (1e308, "1" + "0" * 308),
    (-1e308, "-1" + "0" * 308),
    (1.7976931348623157e308, "17976931348623157" + "0" * 292),
    (1e-300, "0." + "0" * 299 + "1"),
    (1.5e-300, "0." + "0" * 299 + "15"),
    (5e-324, "0." + "0" * 323 + "5"),
    (1.5e20, "150000000000000000000"),
    (1.2345678901234568e16, "1.2345678901234568e16"),  # shorter in Postgres, and here as long as in SQLite
    (1e-7, "0.0000001"),
    (1e15, "1000000000000000.0"),
    (0.1, "0.1"),
    (-0.0, "-0.0"),
    (10**300, "1" + "0" * 300),
    (7, "7"),
]


@rule("RS-35")
@pytest.mark.parametrize("number, text", WRITTEN, ids=[str(row[0]) for row in WRITTEN])
def test_number_is_measured_as_postgres_writes_it(number: float, text: str):
    written = to_json(number).encode()
    assert len(written) + added_to_number(written) == len(text)
    for data in (
        {"n": number},
        {"n": [1, number, {"m": number}, "x"], "o": number},
        {"a": [[number], number]},
    ):
        times = json.dumps(data).count(json.dumps(number))
        assert stored_size(data) == len(to_json(data)) + times * (len(text) - len(written))


@rule("RS-35")
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(9.5e-7)
@example(123456789e300)
def test_any_number_is_measured_by_its_longer_form(number: float):
    written = to_json(number)
    assert len(written) + added_to_number(written.encode()) == max(len(written), len(f"{Decimal(written):f}"))


@pytest.mark.parametrize(
    "text",
    [
        "1e308",
        "1e308,2e5",
        ",1e308,",
        ':1e308}"',
        "[1e308]",
        '",1e308,"',
        "\\",
        "\\\\",
        '\\",1e308',
        "a:1e308,b",
    ],
)
def test_number_inside_a_string_is_not_measured(text: str):
    for data in ({"t": text}, {text: [text, 1.5]}, {"t": [text, {"u": text}], "n": 0.5}):
        assert stored_size(data) == len(to_json(data).encode())
    assert stored_size({"t": [text], "n": [1e308]}) == len(to_json({"t": [text], "n": [1e308]})) + 304


@rule("RS-35", "CC-25")
@case("R3")
def test_numbers_that_grow_in_the_database_are_offloaded_and_restored_exactly():
    numbers = [1e308] * 300
    light, _, offloaded = offload_event({"call_id": "c1", "result": {"numbers": numbers, "title": "t"}})
    assert light["result"]["title"] == "t"
    assert light["result"]["numbers"]["redacted"] is True
    assert [value.content for value in offloaded] == [to_json(numbers).encode()], (
        "the artifact must have the compact JSON"
    )
    assert stored_size(dict(light)) <= LIMIT
    assert (
        restore_markers(light, {value.artifact_id: value.content for value in offloaded})["result"]["numbers"]
        == numbers
    )


@rule("RS-35")
def test_single_number_is_offloaded_if_that_suffices():
    data = {"text": "x" * 1_750, "n": 1.25e-307, "m": 3}
    assert len(to_json(data)) < LIMIT < stored_size(data)
    light, _, offloaded = offload_event(data)
    assert light["m"] == 3
    assert light["text"]["redacted"] is True, "the largest value goes first"
    data["text"] = "x" * 150  # its marker would be larger
    data["o"] = [1e300] * 5
    light, _, offloaded = offload_event(data)
    assert (light["text"], light["m"]) == (data["text"], 3)
    assert stored_size(dict(light)) <= LIMIT
    assert {value.content for value in offloaded} <= {b"1.25e-307", b"1e300"}
    assert restore_markers(light, {value.artifact_id: value.content for value in offloaded}) == data


@rule("RS-35")
def test_event_that_fits_as_stored_is_unchanged():
    data: dict[str, Any] = {"n": [1e308, 2.5e-10], "t": ""}
    data["t"] = "x" * (LIMIT - stored_size(data))
    assert stored_size(data) == LIMIT
    light, _, offloaded = offload_event(data)
    assert light is data
    assert offloaded == ()
    light, _, offloaded = offload_event({**data, "t": data["t"] + "x"})
    assert len(offloaded) == 1


def test_numbers_outside_events_are_not_limited():
    value = {"n": [1e308] * 400}
    assert offload_large_values(value) == (value, ())


NUMBERS = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**40), 10**40)
    | st.sampled_from([1e308, -1e-300, 1.5e20, -0.0])
)
LEAVES = NUMBERS | st.none() | st.booleans() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=10),
)


@rule("RS-35", "CC-25")
@given(
    st.dictionaries(st.text(max_size=5), VALUES | st.lists(NUMBERS, min_size=20, max_size=200), max_size=5)
)
def test_no_event_exceeds_the_limit_with_its_numbers_written_out(data: dict[str, Any]):
    light, _, offloaded = offload_event(data)
    written_out = json.loads(to_json(light), parse_float=lambda text: f"#{Decimal(text):f}#")
    assert (
        len(
            json.dumps(written_out, ensure_ascii=False, separators=(",", ":"))
            .replace('"#', "")
            .replace('#"', "")
            .encode()
        )
        <= LIMIT
    )
    assert restore_markers(
        json.loads(to_json(light)), {value.artifact_id: value.content for value in offloaded}
    ) == json.loads(to_json(data))
