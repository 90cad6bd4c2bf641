"""The orders of accounts. The statements are in `orders.sql`, those that append in `logs.sql`.

An append to the log of a followed account stores a row, in its transaction. Numbering moves rows in the order
of `append_no`, under the lock of the account's order: the rows of a log commit in that order.
"""

from collections.abc import Collection

import msgspec

from easel.core.stream.json_text import to_json
from easel.core.stream.order import Append, LogType, OrderedAppend, OrderState, number_appends, oldest_kept
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlOrders:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def follow(self, account_id: AccountId, seconds: float) -> None:
        [order] = await self._sql.rows("follow_account", account_id=account_id, seconds=seconds)
        if not order["is_complete"]:
            await self._wait_for_appenders()
            await self._sql.rows("complete_order", account_id=account_id)

    async def _wait_for_appenders(self) -> None:
        """Wait until all appends have ended that may have started before the account was followed."""

    async def renew(self, account_ids: Collection[AccountId], seconds: float) -> set[AccountId]:
        rows = await self._sql.rows("renew_follows", account_ids=list(account_ids), seconds=seconds)
        return {row["account_id"] for row in rows}

    async def states(self, account_ids: Collection[AccountId]) -> dict[AccountId, OrderState]:
        rows = await self._sql.rows("read_orders", account_ids=list(account_ids))
        return {
            row["account_id"]: OrderState(row["oldest_seq"], row["last_seq"], bool(row["has_unordered"]))
            for row in rows
        }

    async def number(
        self, account_ids: Collection[AccountId], *, limit: int, kept: int
    ) -> dict[AccountId, OrderState]:
        return await self._sql.transaction(_number_all(account_ids, limit, kept))

    async def read_after(self, account_id: AccountId, server_seq: int, limit: int) -> list[OrderedAppend]:
        rows = await self._sql.rows("read_order", account_id=account_id, cursor=server_seq, limit=limit)
        return [_to_ordered(row) for row in rows]

    async def end_expired(self) -> AccountId | None:
        return await self._sql.transaction(_end_expired())


def _number_all(
    account_ids: Collection[AccountId], limit: int, kept: int
) -> Steps[dict[AccountId, OrderState]]:
    states: dict[AccountId, OrderState] = {}
    for account_id in account_ids:
        state = yield from _number(account_id, limit, kept)
        if state is not None:
            states[account_id] = state
    return states


def _number(account_id: AccountId, limit: int, kept: int) -> Steps[OrderState | None]:
    account = {"account_id": account_id}
    # A separate statement: the next one must see the numbers that were committed before this lock.
    orders = yield "lock_order", account
    if not orders:
        return None
    oldest, newest = orders[0]["oldest_seq"], orders[0]["last_seq"]
    rows = yield "take_unordered", {**account, "limit": limit}
    if not rows:
        return OrderState(oldest, newest, has_unordered=False)
    rows.sort(key=lambda row: row["append_no"])
    appends = [
        Append(LogType(kind), *log) for row in rows for kind, *log in msgspec.json.decode(row["appends"])
    ]
    ordered = number_appends(appends, newest)
    newest = ordered[-1].server_seq
    yield "add_ordered", {**account, "appends": to_json([_to_columns(one) for one in ordered])}
    kept_from = oldest_kept(oldest, newest, kept)
    yield "advance_order", {**account, "oldest_seq": kept_from, "last_seq": newest}
    if kept_from > oldest:
        yield "trim_order", {**account, "oldest_seq": kept_from}
    return OrderState(kept_from, newest, has_unordered=len(rows) == limit)


def _end_expired() -> Steps[AccountId | None]:
    expired = yield "end_expired_follow", {}
    if not expired:
        return None
    account = {"account_id": expired[0]["account_id"]}
    yield "delete_order", account
    yield "delete_unordered", account
    return account["account_id"]


def _to_ordered(row: Row) -> OrderedAppend:
    append = Append(LogType(row["log_type"]), row["log_id"], row["first_seq"], row["last_seq"])
    return OrderedAppend(row["server_seq"], append)


def _to_columns(one: OrderedAppend) -> list[object]:
    append = one.append
    return [one.server_seq, append.log_type.value, append.log_id, append.first_seq, append.last_seq]
