"""The connections of accounts to OAuth providers. The rules are in `sql/common/connections.sql`."""

from easel.core.model.stored import EncryptedText
from easel.core.oauth.connection import ConnectionInfo, NewConnection, StoredConnection
from easel.ids import AccountId, UserId
from easel.stores.nouns.statements import Row, Statements


class SqlConnections:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def list_connections(self, account_id: AccountId) -> list[ConnectionInfo]:
        rows = await self._sql.rows("list_connections", account_id=account_id)
        return [_info_from(row) for row in rows]

    async def read(self, account_id: AccountId, provider: str) -> StoredConnection | None:
        row = await self._sql.row("read_connection", account_id=account_id, provider=provider)
        if row is None:
            return None
        return StoredConnection(
            account_id=account_id,
            info=_info_from(row),
            revision=row["revision"],
            secret=_encrypted_from(row),
            is_expired=bool(row["is_expired"]),
            is_refreshing=bool(row["is_refreshing"]),
        )

    async def connect(self, new: NewConnection) -> bool:
        row = await self._sql.row(
            "connect",
            account_id=new.account_id,
            provider=new.provider,
            user_id=new.user_id,
            key_id=new.secret.key_id,
            data=new.secret.data,
            scopes=new.scopes,
            usable_seconds=new.usable_seconds,
            new_revision=new.revision,
        )
        return row is not None

    async def claim_refresh(self, connection: StoredConnection, refresh_id: str, seconds: float) -> bool:
        row = await self._sql.row(
            "claim_refresh", **_key_of(connection), refresh_id=refresh_id, claim_seconds=seconds
        )
        return row is not None

    async def save_refreshed(
        self,
        connection: StoredConnection,
        secret: EncryptedText,
        *,
        revision: str,
        scopes: str | None,
        usable_seconds: float | None,
    ) -> bool:
        row = await self._sql.row(
            "save_refreshed",
            **_key_of(connection),
            key_id=secret.key_id,
            data=secret.data,
            new_revision=revision,
            scopes=scopes,
            usable_seconds=usable_seconds,
        )
        return row is not None

    async def end_refresh(
        self, connection: StoredConnection, refresh_id: str, *, must_reconnect: bool
    ) -> None:
        await self._sql.rows(
            "end_refresh", **_key_of(connection), refresh_id=refresh_id, must_reconnect=must_reconnect
        )

    async def delete(self, account_id: AccountId, provider: str) -> bool:
        return bool(await self._sql.rows("delete_connection", account_id=account_id, provider=provider))

    async def list_secrets(self, other_than: str) -> list[tuple[AccountId, str, EncryptedText]]:
        rows = await self._sql.rows("list_other_secrets", key_id=other_than)
        return [(AccountId(row["account_id"]), row["provider"], _encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, account_id: AccountId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        row = {"account_id": account_id, "name": name, "key_id": new.key_id, "data": new.data}
        return bool(await self._sql.rows("replace_secret", **row, replaced=old.data))


def _key_of(connection: StoredConnection) -> dict[str, str]:
    return {
        "account_id": connection.account_id,
        "provider": connection.info.provider,
        "old_revision": connection.revision,
    }


def _info_from(row: Row) -> ConnectionInfo:
    return ConnectionInfo(
        provider=row["provider"],
        user_id=UserId(row["user_id"]),
        scopes=row["scopes"],
        connected_at=row["connected_at"],
        expires_at=row["expires_at"],
        must_reconnect=bool(row["must_reconnect"]),
    )


def _encrypted_from(row: Row) -> EncryptedText:
    return EncryptedText(row["key_id"], bytes(row["data"]))
