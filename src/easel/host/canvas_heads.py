"""Notifications about canvases that a store changed on the side, such as the documents of a cancelled run."""

import contextlib
from collections.abc import Iterable

from easel.core.stream.notifications import CanvasAppended
from easel.errors import Unavailable
from easel.host.ports import LogSource, Notifier
from easel.ids import AccountId, CanvasId, scoped_key


async def notify_canvases(
    canvases: LogSource, notifier: Notifier, account_id: AccountId, canvas_ids: Iterable[CanvasId]
) -> None:
    """Notify the subscribers of these canvases. Does not raise: without a notification, a poll is enough."""
    keys = [scoped_key(account_id, canvas_id) for canvas_id in canvas_ids]
    if not keys:
        return
    with contextlib.suppress(Unavailable):
        for key, seq in (await canvases.heads(keys)).items():
            notifier.notify(CanvasAppended(key, seq))
