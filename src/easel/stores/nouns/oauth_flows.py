"""The flows of OAuth. The rules are in the statements of `sql/common/oauth_flows.sql`."""

from dataclasses import asdict

from easel.core.oauth.flow import Flow
from easel.ids import AccountId, UserId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlOAuthFlows:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def start(self, flow: Flow, seconds: float) -> bool:
        return await self._sql.transaction(_start(flow, seconds))

    async def find(self, state: str) -> Flow | None:
        row = await self._sql.row("find_flow", state=state)
        return None if row is None else _flow_from(row)

    async def consume(self, state: str, user_id: UserId, sign_in_id: str | None) -> Flow | None:
        row = await self._sql.row("consume_flow", state=state, user_id=user_id, sign_in_id=sign_in_id)
        return None if row is None else _flow_from(row)


def _start(flow: Flow, seconds: float) -> Steps[bool]:
    yield "delete_expired_flows", {}
    rows = yield "start_flow", {**asdict(flow), "seconds": seconds}
    return bool(rows)


def _flow_from(row: Row) -> Flow:
    return Flow(
        state=row["state"],
        code_verifier=row["code_verifier"],
        provider=row["provider"],
        account_id=AccountId(row["account_id"]),
        user_id=UserId(row["user_id"]),
        sign_in_id=row["sign_in_id"],
        redirect_uri=row["redirect_uri"],
        origin=row["origin"],
    )
