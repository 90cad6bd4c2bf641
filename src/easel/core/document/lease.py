"""The edit lease of a document: which run may read and write it now.

Owns check-out, renewal, release and preemption, and the order in which a lease is checked. Has no database
and no clock: `now` is the store's clock as an argument, and the next lease is the result.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from easel.errors import LeaseExpired, LockNotAvailable, LockNotOwned, StaleEpoch
from easel.ids import RunId, SessionId

TTL = timedelta(seconds=15)  # CT-12
MAX_INTERRUPTED = 20  # runs that a document remembers: more than edit it in the lifetime of one run
_PREFIX = "lease"


@dataclass(frozen=True, slots=True)
class Free:
    """No run has the lease. `interrupted` are the runs that a person has taken it from, oldest first."""

    epoch: int
    interrupted: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    epoch: int
    lease_id: str
    run_id: RunId
    session_id: SessionId
    expires_at: datetime
    interrupted: tuple[RunId, ...] = ()

    def is_live(self, now: datetime) -> bool:
        return now < self.expires_at


Lease = Free | Held


def check_out(
    lease: Lease,
    *,
    run_id: RunId,
    session_id: SessionId,
    now: datetime,
    randomness: str,
    is_interrupted: bool,
) -> Held:
    """Return the lease of this run. Raises `LockNotAvailable` while another lease is live. CT-09, CT-10

    `is_interrupted` says that the user has cancelled the run, or sent a message after the one that the run
    answers, in its session or in that of the document (RS-79). Such a run, and a run that was interrupted at
    this document, gets `StaleEpoch`. CT-19
    """
    if is_interrupted or run_id in lease.interrupted:
        raise StaleEpoch(epoch=lease.epoch)
    if isinstance(lease, Held) and lease.is_live(now):
        raise LockNotAvailable(expires_at=lease.expires_at.isoformat())
    lease_id = f"{_PREFIX}_{lease.epoch}_{_mark(run_id)}_{randomness}"
    return Held(lease.epoch, lease_id, run_id, session_id, now + TTL, lease.interrupted)


def require(lease: Lease, *, lease_id: str, run_id: RunId, now: datetime) -> Held:
    """Return the lease if it is live and has this id and run.

    Raises in this order: `LockNotOwned` for an unknown or foreign id, `StaleEpoch` if the user has acted
    since, `LeaseExpired` if its time is over. RS-48
    """
    epoch = _epoch_of(lease_id, run_id)
    if epoch is None or epoch > lease.epoch:
        raise LockNotOwned(lease_id=lease_id[:100])
    if epoch < lease.epoch:
        raise StaleEpoch(epoch=lease.epoch)
    if isinstance(lease, Free) or lease.lease_id != lease_id or not lease.is_live(now):
        raise LeaseExpired(lease_id=lease_id)
    return lease


def renew(held: Held, now: datetime) -> Held:
    """Return the lease with its end moved to `TTL` from now. CT-13"""
    return replace(held, expires_at=now + TTL)


def release(held: Held) -> Free:
    """Return the lease after check-in, the end of the run or expiry: the epoch stays. CT-16"""
    return Free(held.epoch, held.interrupted)


def preempt(lease: Lease) -> Free:
    """Release the lease because the user acted; the user always wins. CT-18"""
    interrupted = (*lease.interrupted, lease.run_id) if isinstance(lease, Held) else lease.interrupted
    return Free(lease.epoch + 1, interrupted[-MAX_INTERRUPTED:])


def _mark(run_id: RunId) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:12]


def _epoch_of(lease_id: str, run_id: RunId) -> int | None:
    """Return the epoch in the id of a lease of this run, or None. Only the error of a call depends on it."""
    prefix, epoch, mark, *rest = (*lease_id.split("_", 3), "", "", "")[:4]
    if prefix != _PREFIX or mark != _mark(run_id) or not epoch.isdecimal() or not any(rest):
        return None
    return int(epoch[:18])
