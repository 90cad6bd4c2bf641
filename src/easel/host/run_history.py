"""What a run has done so far, read back from its own log."""

from typing import TYPE_CHECKING

import msgspec

from easel.core.run.resume import Progress, progress
from easel.host.ports import RunStore
from easel.ids import RunId

if TYPE_CHECKING:
    from easel.core.stream.log import LoggedEvent

PAGE = 100  # RX-36


async def read_progress(runs: RunStore, run_id: RunId, last_seq: int) -> Progress:
    events: list[LoggedEvent] = []
    cursor = 0
    while cursor < last_seq:
        page = await runs.events_after(run_id, cursor, PAGE)
        if not page:
            break
        events += page
        cursor = page[-1].seq
    return progress((event.type, msgspec.json.decode(event.data)) for event in events)
