"""The usage of accounts. The rules are in the statements of `sql/common/usage.sql`."""

from collections.abc import Mapping

from easel.core.account_limits import Counts, Totals
from easel.core.stream.json_text import to_json
from easel.ids import AccountId
from easel.stores.nouns.statements import Statements


class SqlUsage:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def exchange(
        self, instance_id: str, counts: Mapping[str, Counts], seconds: float
    ) -> dict[str, Counts]:
        rows = [[subject, one.requests, one.streams, one.actions] for subject, one in counts.items()]
        await self._sql.rows("store_counts", instance_id=instance_id, usage=to_json(rows), seconds=seconds)
        others = await self._sql.rows("other_counts", instance_id=instance_id, subjects=list(counts))
        return {
            row["subject"]: Counts(row["requests"], row["streams"], row["actions"])  # of each that is in use
            for row in others
        }

    async def delete_expired(self) -> None:
        await self._sql.rows("delete_expired_counts")

    async def totals(self, account_id: AccountId, day: str) -> Totals:
        row = await self._sql.row("read_totals", account_id=account_id, day=day)
        return Totals(row["stored_bytes"], row["model_tokens"]) if row else Totals(0, 0)

    async def add_model_tokens(self, account_id: AccountId, day: str, tokens: int) -> None:
        await self._sql.rows("add_model_tokens", account_id=account_id, day=day, tokens=tokens)
