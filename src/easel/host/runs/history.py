"""The progress of a run, read from its own log with offloaded values restored."""

from typing import TYPE_CHECKING

import msgspec

from easel.core.run.progress import Progress, to_progress
from easel.host.artifacts import restore_event
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
    decoded = [(event.type, msgspec.json.decode(event.data)) for event in events]
    return to_progress(
        [(kind, await restore_event(artifacts, user_id, kind, data)) for kind, data in decoded]
    )
