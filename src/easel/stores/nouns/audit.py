"""The audit chain: reading it. Each database has its own way to append. The statements are in `audit.sql`."""

from datetime import datetime

from easel.core.audit.chain import ChainEnd, ChainPosition, Checkpoint, Link
from easel.core.audit.record import HOST, StorageClass
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId
from easel.stores.nouns.statements import Statements, Steps

MAX_COMPARED = 10_000  # newest records among which a repeated entry is searched


class SqlAudit:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def get_checkpoint(self) -> Checkpoint | None:
        row = await self._sql.row("checkpoint")
        return row and Checkpoint(ChainPosition(row["seq"], row["hash"]), row["signature"])

    async def signing_key(self) -> str | None:
        row = await self._sql.row("stored_signing_key")
        return row and row["key"]

    async def get_end(self) -> ChainEnd:
        [row] = await self._sql.rows("end_of_chain")
        head = None if row["last_seq"] is None else ChainPosition(row["last_seq"], row["last_hash"])
        return ChainEnd(head, row["newest"])

    async def shorten(self, checkpoint: Checkpoint) -> int:
        return await self._sql.transaction(_shorten(checkpoint))

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        return [Link(**row) for row in await self._sql.rows("records_after", seq=seq, last=last, limit=limit)]

    async def list_records(
        self,
        account_id: AccountId,
        *,
        of_host: bool,
        action: str | None,
        storage_class: StorageClass | None,
        since: datetime | None,
        until: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Link]:
        rows = await self._sql.rows(
            "list_records" if action is None else "list_records_of_action",
            account_id=account_id,
            host_id=HOST if of_host else None,
            action=action,
            storage_class=storage_class.value if storage_class else None,
            since=since,
            until=until,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [Link(**row) for row in rows]


def _shorten(checkpoint: Checkpoint) -> Steps[int]:
    position = {"seq": checkpoint.position.seq, "hash": checkpoint.position.hash}
    if not (yield "store_checkpoint", {**position, "signature": checkpoint.signature}):
        return 0
    [removed] = yield "count_records", position
    yield "remove_records", position
    return removed["count"]
