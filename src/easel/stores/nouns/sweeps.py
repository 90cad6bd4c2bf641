"""Claims of sweeps. The rule is in the statement of `sql/common/sweeps.sql`."""

from easel.stores.nouns.statements import Statements


class SqlSweeps:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def claim(self, name: str, seconds: float) -> bool:
        return await self._sql.row("claim_sweep", name=name, seconds=seconds) is not None
