"""Filters that select the log events a transport sends. CC-02, RS-02 … RS-05, RS-36"""

from dataclasses import dataclass

from easel.core.stream.envelope import EVENT_TYPES, Stream, Visibility
from easel.core.stream.log import LoggedEvent


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Shows the public events of some streams, and internal events if `sees_internal`; no system events."""

    streams: frozenset[Stream]
    sees_internal: bool = False

    def shows(self, event: LoggedEvent) -> bool:
        kind = EVENT_TYPES.get(event.type)
        if kind is None or kind.stream not in self.streams:  # None: an event type of a newer instance
            return False
        return event.visibility is Visibility.PUBLIC or (
            self.sees_internal and event.visibility is Visibility.INTERNAL
        )

    def with_internal(self) -> "EventFilter":
        return EventFilter(self.streams, sees_internal=True)


WHOLE_RUN = EventFilter(frozenset({Stream.NARRATIVE, Stream.STATE}))
CHAT = EventFilter(frozenset({Stream.NARRATIVE}))
RUN_STATE = EventFilter(frozenset({Stream.STATE}))
CANVAS = EventFilter(frozenset({Stream.VISUALS}))
ACCOUNT = EventFilter(frozenset({Stream.ACCOUNT}))
