"""The access tokens of connections, refreshed by the process that needs them first. RX-41

Owns the claim of a refresh: it is a column of the connection, so no transaction is open during the request,
and all other processes wait until the tokens have another revision. A claim that is not released expires, and
another process takes over. Inside a process all callers wait for one task, which none of them cancels.

A provider that rotates refresh tokens ends the old one when it answers. If the process is killed after that
and before the new one is stored, the old one is tried once more; if the provider refuses it, only a person
can help: the connection is marked, and every use says that it must be connected again.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from easel.core.oauth.connection import INVALID_GRANT, GrantedTokens, StoredConnection
from easel.core.oauth.provider import OAuthProvider
from easel.core.principal import host_for
from easel.errors import HostError, ModelFailed, ProviderRefused, ProviderUnreachable, Unavailable
from easel.host.audit.audit import Audit
from easel.host.ports import ConnectionStore, OAuthClient, SecretCipher
from easel.ids import AccountId

POLL_SECONDS = 0.1  # while another process refreshes
RETRY_SECONDS = 0.5  # while the database is unavailable
MAX_WAIT_SECONDS = 60.0  # of a caller

log = structlog.get_logger("oauth")


class StoredTokens(msgspec.Struct):
    """The text that is encrypted."""

    access_token: str
    refresh_token: str | None = None

    def __repr__(self) -> str:
        return "StoredTokens(…)"


class AccessTokens:
    def __init__(
        self,
        store: ConnectionStore,
        cipher: SecretCipher,
        client: OAuthClient,
        audit: Audit,
        *,
        claim_seconds: float,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._client = client
        self._audit = audit
        self._claim_seconds = claim_seconds
        self._new_id = new_id
        self._tasks: dict[tuple[AccountId, str], asyncio.Task[str | None]] = {}

    async def get(self, account_id: AccountId, provider: OAuthProvider) -> str | None:
        """Return the access token of the account, refreshed if it has expired; None without a connection.

        Raises `ModelFailed` if it must be connected again, and the error of a refresh.
        """
        connection = await self._store.read(account_id, provider.name)
        if connection is None:
            return None
        if not connection.is_expired:
            return self._decrypt(_check(connection)).access_token
        key = account_id, provider.name
        if (task := self._tasks.get(key)) is None:
            task = asyncio.create_task(self._renew(account_id, provider), name="oauth.refresh")
            self._tasks[key] = task
            task.add_done_callback(lambda ended: self._forget(key, ended))
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                # A refresh goes on if a run that waits for it is cancelled: its answer must be stored.
                return await asyncio.shield(task)
        except TimeoutError:
            problem = "did not refresh the tokens in time"
            raise ProviderUnreachable(provider=provider.name, problem=problem) from None

    async def close(self) -> None:
        """Wait for the refreshes of this process, whose answers would be lost otherwise."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _forget(self, key: tuple[AccountId, str], ended: asyncio.Task[str | None]) -> None:
        del self._tasks[key]
        if not ended.cancelled():
            ended.exception()  # seen, also if every caller was cancelled

    async def _renew(self, account_id: AccountId, provider: OAuthProvider) -> str | None:
        """Refresh the tokens, or wait until another process has done it."""
        while True:
            connection = await self._store.read(account_id, provider.name)
            if connection is None:
                return None
            tokens = self._decrypt(_check(connection))
            if not connection.is_expired:
                return tokens.access_token
            if tokens.refresh_token is None:
                await self._mark(connection, "expired")
                continue
            refresh_id = self._new_id()
            if not connection.is_refreshing and await self._store.claim_refresh(
                connection, refresh_id, self._claim_seconds
            ):
                fresh = await self._refresh(provider, connection, tokens.refresh_token, refresh_id)
                if fresh is not None:
                    return fresh
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _refresh(
        self, provider: OAuthProvider, connection: StoredConnection, refresh_token: str, refresh_id: str
    ) -> str | None:
        """Ask the provider and store its answer. The caller has the claim.

        Returns the access token, or None if the connection was removed, replaced or revoked in the meantime.
        """
        try:
            fresh = await self._ask(provider, refresh_token)
        except ProviderRefused as problem:
            if problem.details["error"] != INVALID_GRANT:
                await self._store.end_refresh(connection, refresh_id, must_reconnect=False)
                raise
            await self._store.end_refresh(connection, refresh_id, must_reconnect=True)
            self._record(connection, "oauth.failed", {"error": INVALID_GRANT})
        except HostError:
            await self._store.end_refresh(connection, refresh_id, must_reconnect=False)
            raise
        else:
            if await self._save(connection, fresh, refresh_token):
                self._record(connection, "oauth.refreshed", {})
                return fresh.access_token
        return None

    async def _ask(self, provider: OAuthProvider, refresh_token: str) -> GrantedTokens:
        """Ask the provider. A request ends before its claim does, so that no other process repeats it."""
        seconds = self._claim_seconds * 2 / 3
        try:
            async with asyncio.timeout(seconds):
                return await self._client.refresh(provider, refresh_token)
        except TimeoutError:
            problem = f"did not answer within {seconds:g} s"
            raise ProviderUnreachable(provider=provider.name, problem=problem) from None

    async def _save(self, connection: StoredConnection, fresh: GrantedTokens, refresh_token: str) -> bool:
        """Store the tokens, also if the database is unavailable for a while. False: removed, or replaced."""
        text = encode_tokens(fresh, refresh_token)
        secret = self._cipher.encrypt(connection.account_id, connection.info.provider, text)
        revision = self._new_id()
        while True:
            try:
                return await self._store.save_refreshed(
                    connection,
                    secret,
                    revision=revision,
                    scopes=fresh.scopes,
                    usable_seconds=fresh.usable_seconds,
                )
            except Unavailable:
                log.info("oauth.save_repeated", provider=connection.info.provider)
                await asyncio.sleep(RETRY_SECONDS)

    async def _mark(self, connection: StoredConnection, error: str) -> None:
        """Mark a connection that only a person can renew."""
        refresh_id = self._new_id()
        if await self._store.claim_refresh(connection, refresh_id, self._claim_seconds):
            await self._store.end_refresh(connection, refresh_id, must_reconnect=True)
            self._record(connection, "oauth.failed", {"error": error})

    def _decrypt(self, connection: StoredConnection) -> StoredTokens:
        text = self._cipher.decrypt(connection.account_id, connection.info.provider, connection.secret)
        return msgspec.json.decode(text, type=StoredTokens)

    def _record(self, connection: StoredConnection, action: str, details: Mapping[str, str]) -> None:
        self._audit.record_throttled(
            host_for(connection.account_id),
            action,
            subject=connection.info.provider,
            details={**details, "connected_by": connection.info.user_id},
        )


def encode_tokens(tokens: GrantedTokens, refresh_token: str | None = None) -> str:
    """Return the text to encrypt. A provider that does not rotate sends no other refresh token."""
    return msgspec.json.encode(
        StoredTokens(tokens.access_token, tokens.refresh_token or refresh_token)
    ).decode()


def _check(connection: StoredConnection) -> StoredConnection:
    """Raise `ModelFailed` if the provider has ended the connection."""
    if connection.info.must_reconnect:
        raise ModelFailed(reason=describe_ended(connection.info.provider))
    return connection


def describe_ended(provider: str) -> str:
    return (
        f"the connection to {provider} has ended, because the provider revoked it or it expired; connect "
        f"{provider} again."
    )
