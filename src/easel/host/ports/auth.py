"""Ports of accounts, tokens and sign-ins: their stores."""

from collections.abc import Sequence
from typing import Protocol

from easel.core.account import Person
from easel.core.principal import Principal
from easel.core.token import NewToken, Token
from easel.host.ports.streams import LogSource
from easel.ids import AccountId


class AccountStore(LogSource, Protocol):
    """Accounts with their logs, and people. The log of an account is found under its id."""

    async def find_person(self, account_id: AccountId) -> Person | None:
        """Return the person whose account this is, unless the account is disabled."""
        ...

    async def mark_deleted(self, account_id: AccountId) -> bool:
        """Disable an account for good. Its rows and blobs are purged later. False if there is no such one."""
        ...


class TokenStore(Protocol):
    async def create(self, new: NewToken) -> Token | None:
        """Create a token. Returns None if there is no such account, or it is deleted."""
        ...

    async def find_by_digest(self, digest: str) -> Principal | None:
        """Return the principal of the token, unless it is revoked or its account is disabled."""
        ...

    async def find_by_id(self, token_id: str) -> Principal | None:
        """Return the principal of the token, unless it is revoked or its account is disabled."""
        ...

    async def filter_valid(self, token_ids: Sequence[str]) -> set[str]:
        """Return the ids of the tokens that are not revoked and whose account is not disabled."""
        ...

    async def list_tokens(self, account_id: AccountId | None) -> list[Token]:
        """Return the tokens of an account, or of all, oldest first and revoked ones included."""
        ...

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        """Bind a node's token to a node id. Returns None if it is bound already, revoked or not a node's."""
        ...

    async def revoke(self, token_id: str) -> Token | None:
        """Revoke a token. Returns None if there is no such token or it was already revoked."""
        ...


class SignInStore(Protocol):
    """Sign-ins of browsers that were revoked before they expired, and the key that signs cookies."""

    async def signing_key(self, candidate: str) -> str:
        """Return the stored key; if there is none, store the candidate and return it."""
        ...

    async def revoke(self, account_id: AccountId, sign_in_id: str, seconds: float) -> None:
        """Revoke a sign-in durably, and keep the revocation for at least `seconds`."""
        ...

    async def filter_revoked(self, sign_in_ids: Sequence[str]) -> set[str]:
        """Return the ids of the sign-ins that are revoked."""
        ...
