"""What tokens and sign-ins need from outside: their stores."""

from collections.abc import Sequence
from typing import Protocol

from easel.core.token import NewToken, Token
from easel.ids import UserId


class TokenStore(Protocol):
    async def create(self, new: NewToken) -> Token | None:
        """None: there is no such user."""
        ...

    async def find_by_digest(self, digest: str) -> Token | None:
        """Unless it was revoked."""
        ...

    async def find_by_id(self, token_id: str) -> Token | None:
        """Unless it was revoked."""
        ...

    async def filter_valid(self, token_ids: Sequence[str]) -> set[str]:
        """Those of them that have not been revoked."""
        ...

    async def list_tokens(self, user_id: UserId | None) -> list[Token]:
        """Oldest first, revoked ones too; None: of all users."""
        ...

    async def revoke(self, token_id: str) -> Token | None:
        """None: there is no such token, or it was revoked before."""
        ...


class SignInStore(Protocol):
    """Sign-ins of browsers that were ended before their time."""

    async def revoke(self, user_id: UserId, sign_in_id: str, seconds: float) -> None:
        """Durable when it returns; after so many seconds it may be forgotten."""
        ...

    async def filter_revoked(self, sign_in_ids: Sequence[str]) -> set[str]:
        """Those of them that were ended."""
        ...
