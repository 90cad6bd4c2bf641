"""Flows of sign-in by OpenID Connect, in the table of the flows of OAuth.

The rules are in the statements of `sql/common/sign_in_flows.sql`.
"""

from dataclasses import asdict

from easel.core.openid.flow import SignInFlow
from easel.stores.nouns.statements import Statements, Steps


class SqlSignInFlows:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def start(self, flow: SignInFlow, seconds: float) -> None:
        def steps() -> Steps[None]:
            yield "delete_expired_flows", {}
            yield "start_sign_in", {**asdict(flow), "seconds": seconds}

        await self._sql.transaction(steps())

    async def consume(self, state: str, browser: str) -> SignInFlow | None:
        row = await self._sql.row("consume_sign_in", state=state, browser=browser)
        return None if row is None else SignInFlow(**dict(row))
