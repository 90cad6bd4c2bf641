"""The payload structs describe exactly what `seal()` makes of every event type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import inspect

from easel.core.stream.envelope import EVENT_TYPES, Stream
from tests.sample_events import sample_events
from tests.support.strict import ContractBroken, check

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = [(event.type, msgspec.json.decode(event.json)) for event in sample_events()]


def test_every_event_type_has_a_sample() -> None:
    assert {event_type for event_type, _ in SAMPLES} == set(EVENT_TYPES)


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_samples_are_exactly_as_described(event_type: str) -> None:
    shape = EVENT_TYPES[event_type].payload
    for data in (data for kind, data in SAMPLES if kind == event_type):
        check(data, shape)
        for wrong in ({**data, "more": 1}, {**data, "visibility": "secret"}):
            with pytest.raises(ContractBroken):
                check(wrong, shape)


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_samples_have_every_member_at_least_once(event_type: str) -> None:
    row = EVENT_TYPES[event_type]
    given = {path for kind, data in SAMPLES if kind == event_type for path in paths_of(data)}
    added = {("agentId",)} if row.stream is Stream.VISUALS else set[tuple[str, ...]]()  # by the store
    missing = {path for path in members_of(inspect.type_info(row.payload)) if path not in given | added}
    assert missing - NOT_IN_SAMPLES == set()


# Members of structs that many payloads share; another event type has them.
NOT_IN_SAMPLES = {("provenance", "edge_id")}


def paths_of(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*at, name)
            yield from paths_of(item, (*at, name))
    elif isinstance(value, list):
        for item in value:
            yield from paths_of(item, at)


def members_of(kind: inspect.Type, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the members of a struct, markers aside: any long value is one."""
    match kind:
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner):
            yield from members_of(inner, at)
        case inspect.UnionType(types=options):
            for option in options:
                yield from members_of(option, at)
        case inspect.StructType(cls=cls, fields=fields) if cls.__name__ != "Marker":
            for each in fields:
                yield (*at, each.encode_name)
                yield from members_of(each.type, (*at, each.encode_name))
        case _:
            pass
