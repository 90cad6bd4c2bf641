"""The port of calls across instances."""

from collections.abc import Sequence
from typing import Protocol

from easel.core.call import NewCall, TakenCall
from easel.ids import AccountId, CallId


class CallStore(Protocol):
    """Calls between instances. The store's clock alone decides whether a call has expired."""

    async def place_call(self, new: NewCall) -> bool:
        """Place a call durably. Returns False if its target is not connected."""
        ...

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        """Return the calls placed for these targets, each call once."""
        ...

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        """Store the answer of a call. Returns False if the call was cancelled or has timed out."""
        ...

    async def cancel_call(self, account_id: AccountId, call_id: CallId) -> str | None:
        """Cancel a call. Returns the id of the target that runs the call; None if none does."""
        ...

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        """Renew these calls for their caller. Returns the ids of calls that still exist."""
        ...

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        """Return the cancelled calls that run on these targets, each call once.

        With `include_expired`, also the calls that their caller did not renew in time.
        """
        ...

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        """Return the answers that have arrived, each once. None: the call is lost with its connection."""
        ...

    async def sweep(self, older_than_seconds: float) -> None:
        """Delete unfetched answers that are older than this."""
        ...
