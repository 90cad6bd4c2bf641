"""The stored audit chain: its verification, and the removal of old records from its start. CC-06, RS-69

Owns reading the chain in pages. A removed prefix ends at a signed checkpoint, at which the verification
begins. A prefix that is not intact is never removed: it is evidence. Does not know how records are made.
"""

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from easel.core.audit.chain import START, Break, ChainPosition, Checkpoint, check_end, find_cut, follow
from easel.core.audit.record import EASEL
from easel.host.audit.audit import Audit
from easel.host.periodic import Periodic
from easel.host.ports import AuditStore

PAGE_SIZE = 1_000
SHORTEN_SECONDS = 3600.0
_BELOW_ALL = -(2**63)  # less than any seq: a record forged before the first one is verified too

log = structlog.get_logger("audit")


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """Progress of a verification: the chain is valid up to `seq` of `last`, or has a `problem` at `seq`.

    `start` is the checkpoint at which it begins, if records were removed.
    """

    seq: int
    last: int
    position: ChainPosition | None = None
    is_end: bool = False
    problem: str | None = None
    start: ChainPosition | None = None


async def verify(
    store: AuditStore, known: Collection[ChainPosition] = (), *, key: str | None = None
) -> AsyncIterator[ChainProgress]:
    """Verify the chain page by page, up to the end that it has at the start.

    Records that are appended during the verification are not read. The last item has `is_end` or the first
    `problem`. If records are removed meanwhile, the verification begins again at the new checkpoint. The
    chain must contain the `known` positions: checkpoints that were kept outside the database,
    unless their records were removed with a checkpoint that is signed with `key`.
    """
    end = await store.get_end()
    last = max(end.newest, end.head.seq if end.head else 0)
    expected = {position.seq: position for position in known}
    position, below = START, _BELOW_ALL
    checkpoint = await store.get_checkpoint()
    if checkpoint is not None:
        position, below = checkpoint.position, checkpoint.position.seq
        if problem := _check_start(checkpoint, key, expected.get(position.seq)):
            yield ChainProgress(position.seq, last, problem=problem)
            return
        expected = {seq: known for seq, known in expected.items() if seq > position.seq}
    start, broken = checkpoint and checkpoint.position, None
    while links := await store.list_after(below, last, PAGE_SIZE):
        followed = follow(position, links)
        if isinstance(followed, Break):
            broken = followed
            break
        changed = next((link.seq for link in links if expected.pop(link.seq, link).hash != link.hash), None)
        if changed is not None:
            problem = f"Record {changed} does not match its checkpoint: the chain was rewritten."
            yield ChainProgress(changed, last, problem=problem)
            return
        position, below = followed, followed.seq
        yield ChainProgress(position.seq, last, position, start=start)
    broken = broken or check_end(position, end)
    if broken is not None and await _is_shortened_after(position, store):
        async for progress in verify(store, known, key=key):
            yield progress
        return
    if broken is None and expected:
        problem = f"There is a checkpoint for record {min(expected)}, but the chain ends with {position.seq}."
        broken = Break(position.seq + 1, problem)
    yield (
        ChainProgress(position.seq, last, position, is_end=True, start=start)
        if broken is None
        else ChainProgress(broken.seq, last, problem=broken.problem)
    )


async def _is_shortened_after(position: ChainPosition, store: AuditStore) -> bool:
    """Return whether records after this position were removed since they were to be read."""
    checkpoint = await store.get_checkpoint()
    return checkpoint is not None and checkpoint.position.seq > position.seq


def _check_start(checkpoint: Checkpoint, key: str | None, known: ChainPosition | None) -> str | None:
    """Return the problem of the checkpoint at which the chain begins, or None."""
    seq = checkpoint.position.seq
    if key is None or not checkpoint.is_signed_with(key):
        return (
            f"The checkpoint at record {seq}, up to which records were removed, is not signed with the key "
            "of this server (EASEL_SECRET_KEY, or the one in the database)."
        )
    if known is not None and known != checkpoint.position:
        return f"Record {seq} does not match its checkpoint: the chain was rewritten."
    return None


class AuditRetention:
    """Removes records that are older than `days` from the start of the chain. If 0, records are kept."""

    def __init__(
        self,
        store: AuditStore,
        audit: Audit,
        *,
        days: float,
        key: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._audit = audit
        self._days = days
        self._key = key
        self._now = now

    def periodic(self) -> Periodic:
        """Return the periodic removal, which workers run. Several workers may do it at the same time."""
        return Periodic("shorten the audit chain", SHORTEN_SECONDS, self.once)

    async def once(self) -> int:
        """Remove the old records, page by page. Returns how many were removed."""
        removed = 0
        while self._days and (count := await self._remove_page()):
            removed += count
        if removed:
            log.info("audit.shortened", records=removed)
            self._audit.note(EASEL, "audit.shortened", details={"records": removed, "days": self._days})
        return removed

    async def _remove_page(self) -> int:
        checkpoint = await self._store.get_checkpoint()
        start = checkpoint.position if checkpoint else START
        end = await self._store.get_end()
        links = await self._store.list_after(start.seq, end.newest, PAGE_SIZE)
        cut = find_cut(start, links, self._now() - timedelta(days=self._days))
        if isinstance(cut, Break):
            if await _is_shortened_after(start, self._store):  # by another worker, which continues
                return 0
            log.error("audit.not_shortened", record=cut.seq, problem=cut.problem)
            return 0
        return 0 if cut == start else await self._store.shorten(Checkpoint.sign(cut, self._key))
