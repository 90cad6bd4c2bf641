"""The progress of a run, read from its own log with offloaded values restored."""

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import structlog

from easel.core.run.progress import Progress, to_progress
from easel.errors import HostError, Unavailable
from easel.host.artifacts import restore_event
from easel.host.ports import ArtifactAccess, RunStore
from easel.host.runs.log_writer import MAX_ARTIFACT_WAIT_SECONDS, RETRY_SECONDS, retry_until_available
from easel.ids import AccountId, RunId

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.core.stream.log import LoggedEvent

PAGE = 100  # RX-36

log = structlog.get_logger("worker")


async def read_progress(
    runs: RunStore, artifacts: ArtifactAccess | None, account_id: AccountId, run_id: RunId, last_seq: int
) -> Progress:
    """Return the progress that earlier attempts have made, up to `last_seq` of the run's log.

    Without `artifacts`, offloaded values are not restored.
    """
    events: list[LoggedEvent] = []
    cursor = 0
    while cursor < last_seq:
        page = await runs.events_after(run_id, cursor, PAGE)
        if not page:
            break
        events += page
        cursor = page[-1].seq
    decoded = [(event.type, msgspec.json.decode(event.data)) for event in events]
    if artifacts is not None:
        decoded = [(kind, await restore_event(artifacts, account_id, kind, data)) for kind, data in decoded]
    return to_progress(decoded)


async def read_final_progress(runs: RunStore, artifacts: ArtifactAccess, claim: "Claim") -> Progress:
    """Return the progress of earlier attempts, for a run that ends without being continued.

    Artifacts that stay unavailable or are corrupt do not keep the run from ending: their text is left out.
    """
    place = (claim.account_id, claim.run_id, claim.last_seq)
    give_up_at = time.monotonic() + MAX_ARTIFACT_WAIT_SECONDS
    while True:
        try:
            return await read_progress(runs, artifacts, *place)
        except Unavailable:
            if time.monotonic() > give_up_at:
                break
            await asyncio.sleep(RETRY_SECONDS)
        except HostError:
            break
    log.warning("run.text_incomplete", run_id=claim.run_id)
    return await retry_until_available(lambda: read_progress(runs, None, *place))
