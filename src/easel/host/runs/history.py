"""The progress of a run, read from its own log with offloaded values restored."""

from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.run.progress import Progress, to_progress
from easel.core.stream.envelope import MESSAGE_EVENTS
from easel.host.artifacts import restore, restore_text
from easel.host.ports import ArtifactAccess, RunStore
from easel.ids import RunId, UserId

if TYPE_CHECKING:
    from easel.core.stream.log import LoggedEvent

PAGE = 100  # RX-36


async def read_progress(
    runs: RunStore, artifacts: ArtifactAccess, user_id: UserId, run_id: RunId, last_seq: int
) -> Progress:
    """Return the progress that earlier attempts have made, up to `last_seq` of the run's log."""
    events: list[LoggedEvent] = []
    cursor = 0
    while cursor < last_seq:
        page = await runs.events_after(run_id, cursor, PAGE)
        if not page:
            break
        events += page
        cursor = page[-1].seq
    return to_progress([(event.type, await _restore_event(artifacts, user_id, event)) for event in events])


async def _restore_event(artifacts: ArtifactAccess, user_id: UserId, event: "LoggedEvent") -> Any:
    data = msgspec.json.decode(event.data)
    if event.type not in MESSAGE_EVENTS:
        return await restore(artifacts, user_id, data)
    return {**data, "text": await restore_text(artifacts, user_id, data)} if "attachments" in data else data
