"""The orders of accounts. The statements are in `orders.sql`, those that append in `logs.sql`.

A transaction that appends to logs of followed accounts stores a row. One transaction at a time numbers the
rows in the order of `append_no`, which is the order in which the appends of each log commit.
"""

from collections.abc import Collection, Sequence

import msgspec

from easel.core.stream.json_text import to_json
from easel.core.stream.log import Bounds
from easel.core.stream.order import Append, LogType, Numbered, OrderedAppend, advance, number_appends
from easel.errors import NotFound
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlOrders:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def follow(self, account_id: AccountId, seconds: float) -> None:
        order = await self._sql.row("follow_account", account_id=account_id, seconds=seconds)
        if order is None:
            raise NotFound(what="account", id=account_id)
        if not order["is_complete"]:
            await self._wait_for_appenders()
            await self._sql.rows("complete_order", account_id=account_id)

    async def _wait_for_appenders(self) -> None:
        """Wait until all appends have ended that may have started before the account was followed."""

    async def renew(self, account_ids: Collection[AccountId], seconds: float) -> set[AccountId]:
        rows = await self._sql.rows("renew_follows", account_ids=list(account_ids), seconds=seconds)
        return {row["account_id"] for row in rows}

    async def bounds(self, account_ids: Collection[AccountId]) -> dict[AccountId, Bounds]:
        return _to_bounds(await self._sql.rows("read_orders", account_ids=list(account_ids)))

    async def has_unordered(self) -> bool:
        return await self._sql.row("has_unordered") is not None

    async def number(self, *, limit: int, kept: int) -> Numbered | None:
        return await self._sql.transaction(_number(limit, kept))

    async def read_after(self, account_id: AccountId, server_seq: int, limit: int) -> list[OrderedAppend]:
        rows = await self._sql.rows("read_order", account_id=account_id, cursor=server_seq, limit=limit)
        return [_to_ordered(row) for row in rows]

    async def end_expired(self) -> AccountId | None:
        return await self._sql.transaction(_end_expired())


def _number(limit: int, kept: int) -> Steps[Numbered | None]:
    # A separate statement: the next one must see what was numbered before this lock.
    if not (yield "lock_numbering", {}):
        return None
    rows = yield "take_unordered", {"limit": limit}
    rows.sort(key=lambda row: row["append_no"])
    appends: dict[AccountId, list[Append]] = {}
    for row in rows:
        for account_id, log_type, *log in msgspec.json.decode(row["appends"]):
            appends.setdefault(account_id, []).append(Append(LogType(log_type), *log))
    # Following the other accounts has ended.
    orders = _to_bounds((yield "lock_orders", {"account_ids": list(appends)})) if appends else {}
    columns: list[list[object]] = []
    newest: dict[AccountId, Bounds] = {}
    for account_id, order in orders.items():
        ordered = number_appends(appends[account_id], order.newest)
        columns += [_to_columns(account_id, one) for one in ordered]
        newest[account_id] = advance(order, ordered[-1].server_seq, kept)
    if orders:
        yield "add_ordered", {"appends": to_json(columns)}
        advanced = [[account_id, order.oldest, order.newest] for account_id, order in newest.items()]
        yield "advance_orders", {"account_ids": list(newest), "orders": to_json(advanced)}
    for account_id, order in newest.items():
        if order.oldest > orders[account_id].oldest:
            yield "trim_order", {"account_id": account_id, "oldest_seq": order.oldest}
    return Numbered(newest, has_more=len(rows) == limit)


def _end_expired() -> Steps[AccountId | None]:
    expired = yield "end_expired_follow", {}
    if not expired:
        return None
    account_id: AccountId = expired[0]["account_id"]
    yield "delete_order", {"account_id": account_id}
    return account_id


def _to_bounds(rows: Sequence[Row]) -> dict[AccountId, Bounds]:
    return {row["account_id"]: Bounds(row["oldest_seq"], row["last_seq"], ended=False) for row in rows}


def _to_ordered(row: Row) -> OrderedAppend:
    append = Append(LogType(row["log_type"]), row["log_id"], row["first_seq"], row["last_seq"])
    return OrderedAppend(row["server_seq"], append)


def _to_columns(account_id: AccountId, one: OrderedAppend) -> list[object]:
    append = one.append
    log = [append.log_type.value, append.log_id]
    return [account_id, one.server_seq, *log, append.first_seq, append.last_seq]
