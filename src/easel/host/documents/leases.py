"""The leases of the runs that this process executes: renewed by activity, released at the end.

Owns which runs may hold a lease, so that a run without a document costs no statement. The store's clock
alone decides whether a lease is live; a lease that is not renewed expires. Does not know tools or models.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator

import structlog

from easel.core.canvas.events import CanvasEvents
from easel.core.document.document import Document, DocumentChange
from easel.core.document.lease import TTL, Held, release
from easel.core.principal import host_for
from easel.core.run.run import Claim
from easel.errors import NotFound, Unavailable
from easel.host.canvas_heads import notify_canvases
from easel.host.documents.transactions import DocumentTransactions
from easel.host.periodic import Periodic
from easel.host.ports import LogSource, Notifier
from easel.ids import AccountId, CanvasId, RunId, new_event_id

RENEW_SECONDS = 1.0  # the leases of a run are renewed at most this often
EXPIRY_SECONDS = 2.0
FORGET_SECONDS = 4 * TTL.total_seconds()  # after the last renewal
MAX_EXPIRED = 100  # leases that are released in one round

log = structlog.get_logger("documents")


class LeaseKeeper:
    """Implements `Leases`. `step_seconds` limits how long a request to a provider keeps a lease. RS-70"""

    def __init__(
        self,
        transactions: DocumentTransactions,
        canvases: LogSource,
        notifier: Notifier,
        *,
        step_seconds: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transactions = transactions
        self._documents = transactions.store
        self._canvases = canvases
        self._notifier = notifier
        self._clock = clock
        self._held: dict[RunId, set[CanvasId]] = {}
        self._renewed_at: dict[RunId, float] = {}
        self._step_seconds = step_seconds
        self._requests: dict[RunId, float] = {}  # when each request to a provider in flight began

    @contextlib.asynccontextmanager
    async def of(self, claim: Claim) -> AsyncGenerator["KeptLeases"]:
        lease = KeptLeases(self, claim)
        try:
            yield lease
        finally:
            if not lease.is_kept:
                await self.release(claim)

    def note_checked_out(self, run_id: RunId, canvas_id: CanvasId) -> None:
        """Remember that the run has a lease, which was renewed just now."""
        self._held.setdefault(run_id, set()).add(canvas_id)
        self._renewed_at[run_id] = self._clock()

    def note_checked_in(self, run_id: RunId, canvas_id: CanvasId) -> None:
        held = self._held.get(run_id)
        if held is not None:
            held.discard(canvas_id)
            if not held:
                self._forget(run_id)

    def _forget(self, run_id: RunId) -> None:
        self._held.pop(run_id, None)
        self._renewed_at.pop(run_id, None)

    def may_hold(self, run_id: RunId) -> bool:
        return run_id in self._held

    async def note_activity(self, run_id: RunId) -> None:
        """Renew the leases of the run, at most once per `RENEW_SECONDS`. CT-14"""
        if run_id in self._held and self._clock() - self._renewed_at[run_id] >= RENEW_SECONDS:
            await self._renew([run_id])

    @contextlib.contextmanager
    def waiting(self, run_id: RunId) -> Generator[None]:
        """Keep the leases of a run while its request to a provider is in flight."""
        self._requests[run_id] = self._clock()
        try:
            yield
        finally:
            del self._requests[run_id]

    async def renew_in_flight(self) -> None:
        """Renew the leases of the runs that wait for a provider, in one statement. RS-70"""
        began_after = self._clock() - self._step_seconds
        waiting = [run_id for run_id, began_at in self._requests.items() if began_at > began_after]
        if holders := [run_id for run_id in waiting if run_id in self._held]:
            await self._renew(holders)

    async def _renew(self, run_ids: list[RunId]) -> None:
        now = self._clock()
        for run_id in run_ids:  # before the statement, so that concurrent activity sends no second one
            self._renewed_at[run_id] = now
        try:
            await self._documents.renew_leases(run_ids, TTL.total_seconds())
        except Unavailable:
            log.info("lease.not_renewed", runs=len(run_ids))

    async def release(self, claim: Claim) -> None:
        """End the leases of a run whose tool loop has ended. CT-16

        An earlier attempt may have left a lease that this process does not know of. While the store is
        unavailable, the leases are left to expire.
        """
        if claim.run_id not in self._held and not (claim.is_takeover and claim.has_document):
            return
        self._forget(claim.run_id)
        with contextlib.suppress(Unavailable):
            released = await self._documents.release_leases(claim)
            await notify_canvases(self._canvases, self._notifier, claim.account_id, released)

    def periodics(self) -> list[Periodic]:
        """Return the renewal of leases, and the release of expired ones, which any instance may do."""
        return [
            Periodic("leases.renew", TTL.total_seconds() / 3, self.renew_in_flight),
            Periodic("leases.expire", EXPIRY_SECONDS, self.release_expired),
        ]

    # -- expiry ----------------------------------------------------------------------------------------------

    async def release_expired(self) -> int:
        """Release expired leases, so that viewers see their end. Returns how many were released. CT-12"""
        now = self._clock()
        for run_id, renewed_at in list(self._renewed_at.items()):
            if now - renewed_at > FORGET_SECONDS:  # such as a run whose claim was lost
                self._forget(run_id)
        expired = await self._documents.list_expired_leases(MAX_EXPIRED)
        for account_id, canvas_id in expired:
            await self._release_expired(account_id, canvas_id)
        return len(expired)

    async def _release_expired(self, account_id: AccountId, canvas_id: CanvasId) -> None:
        events = CanvasEvents.by(host_for(account_id), canvas_id, event_id=new_event_id())

        def decide(document: Document) -> DocumentChange | None:
            lease = document.lease
            if not isinstance(lease, Held) or lease.is_live(document.now):
                return None
            free = release(lease)
            event = events.lease_changed(document.canvas_revision, free, "expired")
            return DocumentChange(lease=free, events=[event])

        with contextlib.suppress(NotFound):
            await self._transactions.apply(account_id, canvas_id, decide)


class KeptLeases:
    """The leases of one run, as its loop uses them."""

    def __init__(self, keeper: LeaseKeeper, claim: Claim) -> None:
        self._keeper = keeper
        self._claim = claim
        self.is_kept = False

    @property
    def is_held(self) -> bool:
        return self._keeper.may_hold(self._claim.run_id)

    async def activity(self) -> None:
        await self._keeper.note_activity(self._claim.run_id)

    def waiting(self, *, is_remote: bool) -> contextlib.AbstractContextManager[None]:
        return self._keeper.waiting(self._claim.run_id) if is_remote else contextlib.nullcontext()

    async def release(self) -> None:
        await self._keeper.release(self._claim)
