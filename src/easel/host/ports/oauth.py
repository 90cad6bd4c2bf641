"""Ports of the connections to OAuth providers: the stores of flows and connections, and requests to them."""

from typing import Protocol

from easel.core.model.stored import EncryptedText
from easel.core.oauth.connection import ConnectionInfo, GrantedTokens, NewConnection, StoredConnection
from easel.core.oauth.flow import Flow
from easel.core.oauth.provider import OAuthProvider
from easel.host.ports.secrets import RotatedStore
from easel.ids import AccountId, UserId


class OAuthFlowStore(Protocol):
    async def start(self, flow: Flow, seconds: float) -> bool:
        """Store a flow for so many seconds. Returns False if its account or person is gone."""
        ...

    async def find(self, state: str) -> Flow | None:
        """Return a flow that is not consumed or expired."""
        ...

    async def consume(self, state: str, user_id: UserId, sign_in_id: str | None) -> Flow | None:
        """Delete and return a flow of this person, and of this sign-in if a sign-in began it. RX-44"""
        ...


class ConnectionStore(RotatedStore, Protocol):
    async def list_connections(self, account_id: AccountId) -> list[ConnectionInfo]:
        """Return the connections of the account, by provider."""
        ...

    async def read(self, account_id: AccountId, provider: str) -> StoredConnection | None:
        """Return the connection of the account to this provider."""
        ...

    async def connect(self, new: NewConnection) -> bool:
        """Store or replace a connection. Returns False if the person is no admin of the account now."""
        ...

    async def claim_refresh(self, connection: StoredConnection, refresh_id: str, seconds: float) -> bool:
        """Claim the refresh of these tokens. Returns False if another has the claim, or they have changed."""
        ...

    async def save_refreshed(
        self,
        connection: StoredConnection,
        secret: EncryptedText,
        *,
        revision: str,
        scopes: str | None,
        usable_seconds: float | None,
    ) -> bool:
        """Replace the tokens. Returns False if the connection is removed or its tokens have changed."""
        ...

    async def end_refresh(
        self, connection: StoredConnection, refresh_id: str, *, must_reconnect: bool
    ) -> None:
        """End this claim without new tokens."""
        ...

    async def delete(self, account_id: AccountId, provider: str) -> bool:
        """Delete a connection. Returns False if there is none."""
        ...


class OAuthClient(Protocol):
    """Requests to providers. Their errors contain neither tokens nor codes."""

    def authorize_url(
        self, provider: OAuthProvider, *, redirect_uri: str, state: str, code_verifier: str
    ) -> str:
        """Return the address at which the provider asks the person, with the S256 challenge."""
        ...

    async def exchange(
        self, provider: OAuthProvider, *, code: str, redirect_uri: str, code_verifier: str
    ) -> GrantedTokens:
        """Return the tokens for the code of a callback. Raises `ProviderRefused`, `ProviderUnreachable`."""
        ...

    async def refresh(self, provider: OAuthProvider, refresh_token: str) -> GrantedTokens:
        """Return fresh tokens. Raises `ProviderRefused`, `ProviderUnreachable`."""
        ...
