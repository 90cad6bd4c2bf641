"""What a run has done so far, read back from its own log, heavy values included."""

from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.run.progress import Progress, progress
from easel.core.stream.payload_limit import markers_in, restored
from easel.host.ports import Keeper, RunStore
from easel.ids import RunId, UserId

if TYPE_CHECKING:
    from easel.core.stream.log import LoggedEvent

PAGE = 100  # RX-36


async def read_progress(runs: RunStore, keeper: Keeper, user_id: UserId, run_id: RunId, last_seq: int) -> Progress:
    events: list[LoggedEvent] = []
    cursor = 0
    while cursor < last_seq:
        page = await runs.events_after(run_id, cursor, PAGE)
        if not page:
            break
        events += page
        cursor = page[-1].seq
    return progress([(event.type, await whole(keeper, user_id, msgspec.json.decode(event.data))) for event in events])


async def whole(keeper: Keeper, user_id: UserId, value: Any) -> Any:
    """A stored value with everything that was moved put back."""
    fetched = {artifact_id: await keeper.read(user_id, artifact_id) for artifact_id in markers_in(value)}
    return restored(value, fetched)
