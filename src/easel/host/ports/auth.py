"""Ports of accounts, tokens and sign-ins: their stores."""

from collections.abc import Collection, Sequence
from typing import Protocol

from easel.core.account import AccountKind, Member, Person
from easel.core.principal import Principal, Role
from easel.core.token import NewToken, Token
from easel.host.ports.streams import LogSource
from easel.ids import AccountId, UserId


class AccountStore(LogSource, Protocol):
    """Accounts with their logs, and people. The log of an account is found under its id."""

    async def find_person(self, account_id: AccountId) -> Person | None:
        """Return the person whose account this is, unless the account is disabled."""
        ...

    async def add(self, account_id: AccountId, kind: AccountKind, display_name: str | None = None) -> bool:
        """Create an account, and its person. False if the name is or was in use."""
        ...

    async def set_member(self, account_id: AccountId, user_id: UserId, role: Role) -> bool:
        """Make a person a member of a team, or change their role. False if it is no team or no person."""
        ...

    async def mark_deleted(self, account_id: AccountId) -> bool:
        """Disable an account for good. Its rows and blobs are purged later. False if there is no such one."""
        ...


class TokenStore(Protocol):
    """Tokens. A valid one is not revoked, has not expired, and has a person with a role in its account."""

    async def create(self, new: NewToken) -> Token | None:
        """Create a token. Returns None if the person has no role in the account, or it is deleted."""
        ...

    async def find_by_digest(self, digest: str) -> Principal | None:
        """Return the principal of the token, None if it is not valid."""
        ...

    async def find_by_id(self, token_id: str) -> Principal | None:
        """Return the principal of the token, None if it is not valid."""
        ...

    async def list_valid(self, token_ids: Sequence[str]) -> list[Principal]:
        """Return the principals of those of these tokens that are valid."""
        ...

    async def note_use(self, token_ids: Sequence[str]) -> None:
        """Store that these tokens were used now."""
        ...

    async def list_tokens(self, account_id: AccountId | None) -> list[Token]:
        """Return the tokens of an account, or of all, oldest first and revoked ones included."""
        ...

    async def find(self, account_id: AccountId, token_id: str) -> Token | None:
        """Return a token of the account, also a revoked one."""
        ...

    async def is_node_of_another(self, account_id: AccountId, node_id: str, user_id: UserId) -> bool:
        """Return whether another person has a valid token of this node there, or has connected it."""
        ...

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        """Bind a node's token to a node id. Returns None if it is bound already, revoked or not a node's."""
        ...

    async def revoke(self, token_id: str) -> Token | None:
        """Revoke a token. Returns None if there is no such token or it was already revoked."""
        ...


class SignInStore(Protocol):
    """The sign-ins of browsers, and the key that signs cookies."""

    async def signing_key(self, candidate: str) -> str:
        """Return the stored key; if there is none, store the candidate and return it."""
        ...

    async def create(
        self,
        sign_in_id: str,
        user_id: UserId,
        token_id: str | None,
        seconds: float,
        issuer: str | None = None,
    ) -> None:
        """Store a sign-in. It also ends with the token, if that is stored."""
        ...

    async def extend(
        self, sign_in_id: str, user_id: UserId, seconds: float, issuer: str | None = None
    ) -> bool:
        """Let a sign-in of this person expire later. Returns False if it has ended."""
        ...

    async def find_issuer(self, sign_in_id: str) -> str | None:
        """Return the issuer by which the person signed in, None for another way."""
        ...

    async def list_valid(
        self, sign_ins: Collection[tuple[str, AccountId | None]]
    ) -> dict[tuple[str, AccountId], Member]:
        """Return the members that these sign-ins are in these accounts, and in the persons' own."""
        ...

    async def end(self, sign_in_id: str) -> bool:
        """End a sign-in. Returns False if it has ended."""
        ...

    async def end_all(self, user_id: UserId, kept: str = "") -> list[str]:
        """End the sign-ins of a person, except one. Returns those that were open."""
        ...
