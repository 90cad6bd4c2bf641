"""Which events each filter shows: every type at every visibility."""

from datetime import UTC, datetime
from itertools import combinations

import pytest

from easel.core.stream.envelope import EVENT_TYPES, Stream, Visibility
from easel.core.stream.filter import ACCOUNT, CANVAS, CHAT, RUN_STATE, WHOLE_RUN, EventFilter
from easel.core.stream.log import LoggedEvent
from tests.requirements import case, rule

VIEWS = {
    "chat": CHAT,
    "run": WHOLE_RUN,
    "state": RUN_STATE,
    "canvas": CANVAS,
    "account": ACCOUNT,
}  # /ws/chat, /api/runs/…/events, /sse/run, /sse/canvas

PLACES = {
    # type                visibility  filters that show it
    "message.delta":     ("public",   {"chat", "run"}),
    "message.completed": ("public",   {"chat", "run"}),
    "tool.call":         ("public",   {"chat", "run"}),
    "tool.result":       ("public",   {"chat", "run"}),
    "reasoning.delta":   ("internal", {"chat", "run"}),
    "step.completed":    ("internal", {"chat", "run"}),
    "run.start":         ("public",   {"state", "run"}),
    "run.status":        ("public",   {"state", "run"}),
    "whiteboard.write":  ("public",   {"state", "run"}),
    "blackboard.write":  ("public",   {"state", "run"}),
    "done":              ("public",   {"state", "run"}),
    "canvas.created":    ("public",   {"canvas"}),
    "canvas.updated":   ("public",   {"canvas"}),
    "canvas.view.updated":   ("public",   {"canvas"}),
    "canvas.snapshot":   ("public",   {"canvas"}),
    "canvas.action.asked":    ("public", {"canvas"}),
    "canvas.action.started":  ("public", {"canvas"}),
    "canvas.action.finished": ("public", {"canvas"}),
    "canvas.action.failed":   ("public", {"canvas"}),
    "canvas.action.output":   ("public", {"canvas"}),
    "canvas.action.refused":  ("public", {"canvas"}),
    "canvas.refresh.failed":  ("public", {"canvas"}),
    "canvas.refresh.recovered": ("public", {"canvas"}),
    "canvas.document.changed":  ("public", {"canvas"}),
    "canvas.lease.changed":     ("public", {"canvas"}),
    "session.created":   ("public",   {"account"}),
    "session.renamed":   ("public",   {"account"}),
    "session.removed":   ("public",   {"account"}),
}  # fmt: skip


def logged(event_type: str, visibility: Visibility) -> LoggedEvent:
    return LoggedEvent(1, event_type, visibility, datetime(2026, 11, 1, tzinfo=UTC), "{}")


def seen_by(event_type: str, visibility: Visibility, *, debug: bool) -> set[str]:
    event = logged(event_type, visibility)
    return {name for name, view in VIEWS.items() if (view.with_internal() if debug else view).shows(event)}


def test_table_has_every_event_type() -> None:
    assert set(PLACES) == set(EVENT_TYPES)
    assert {name: kind.visibility.value for name, kind in EVENT_TYPES.items()} == {
        name: row[0] for name, row in PLACES.items()
    }


@case("E11")
@rule(
    "CC-02",
    "CC-03",
    "CC-07",
    "CC-09",
    "CC-12",
    "CC-13",
    "CC-15",
    "CC-31",
    "RS-02",
    "RS-03",
    "RS-04",
    "RS-05",
    "RS-06",
    "RS-36",
)
@pytest.mark.parametrize("debug", [False, True], ids=["as it is", "with debug"])
@pytest.mark.parametrize("visibility", Visibility)
@pytest.mark.parametrize("event_type", PLACES)
def test_event_is_shown_by_the_filters_of_its_stream_and_visibility(
    event_type: str, visibility: Visibility, debug: bool
) -> None:
    allowed = {Visibility.PUBLIC: True, Visibility.INTERNAL: debug, Visibility.SYSTEM: False}[visibility]
    assert seen_by(event_type, visibility, debug=debug) == (PLACES[event_type][1] if allowed else set())


@rule("CC-02", "RS-06")
@pytest.mark.parametrize(
    "event_type", ["run.failed", "tool.error", "http.slow", "canvas.action", "", "message", "message.delta "]
)
def test_unknown_event_type_is_never_shown(event_type: str) -> None:
    """Such as an audit action, or a type of a newer instance."""
    for visibility in Visibility:
        assert seen_by(event_type, visibility, debug=True) == set()


@rule("CC-02")
def test_each_stream_but_system_has_one_filter() -> None:
    reserved = [CHAT.streams, RUN_STATE.streams, CANVAS.streams, ACCOUNT.streams]
    assert not any(one & other for one, other in combinations(reserved, 2))
    assert frozenset[Stream]().union(*reserved) == frozenset(Stream) - {Stream.SYSTEM}
    assert WHOLE_RUN.streams == CHAT.streams | RUN_STATE.streams
    assert not any(view.sees_internal for view in VIEWS.values())


@rule("CC-13", "RS-06")
def test_filter_of_all_streams_shows_no_system_events() -> None:
    everything = EventFilter(frozenset(Stream), sees_internal=True)
    assert {name for name in EVENT_TYPES if everything.shows(logged(name, Visibility.SYSTEM))} == set()
    assert all(everything.shows(logged(name, Visibility.INTERNAL)) for name in EVENT_TYPES)
