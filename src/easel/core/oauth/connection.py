"""A connection of an account to an OAuth provider: its person, its tokens, and when they are refreshed.

Owns the members of a connection, and how long a token is used. Does not know how connections are stored or tokens obtained.
"""

from dataclasses import dataclass, field
from datetime import datetime

from easel.core.model.stored import EncryptedText
from easel.ids import AccountId, UserId

MAX_TOKEN_LENGTH = 16_384
EARLY_SECONDS = 30.0  # a token is refreshed this long before it expires, or in the last tenth of its time
INVALID_GRANT = "invalid_grant"  # the error of a refresh token that is revoked, expired or used before


@dataclass(frozen=True, slots=True)
class GrantedTokens:
    """The tokens that a provider has granted. A refresh may leave the refresh token as it is."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_in: float | None = None  # seconds; None: the provider does not say
    scopes: str | None = None  # None: as asked for

    @property
    def usable_seconds(self) -> float | None:
        """Return after how long the access token is refreshed."""
        if self.expires_in is None:
            return None
        return max(self.expires_in - min(EARLY_SECONDS, self.expires_in / 10), 0.0)


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """The part of a connection that may be shown."""

    provider: str
    user_id: UserId
    scopes: str
    connected_at: datetime
    expires_at: datetime | None  # when the access token is refreshed, if it is needed then
    must_reconnect: bool  # the provider has revoked it


@dataclass(frozen=True, slots=True)
class StoredConnection:
    """A connection as stored. Each change of its tokens has another `revision`."""

    account_id: AccountId
    info: ConnectionInfo
    revision: str
    secret: EncryptedText
    is_expired: bool  # by the clock of the database
    is_refreshing: bool  # some process holds the claim to refresh it


@dataclass(frozen=True, slots=True)
class NewConnection:
    account_id: AccountId
    provider: str
    user_id: UserId
    scopes: str
    revision: str
    secret: EncryptedText
    usable_seconds: float | None
