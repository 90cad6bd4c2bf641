"""Ports of sign-in by OpenID Connect: the stores of flows and identities, and requests to the provider."""

from collections.abc import Mapping
from typing import Protocol

from easel.core.account import Member
from easel.core.openid.flow import SignInFlow
from easel.core.openid.identity import Identity, KnownIdentity, TeamChanges
from easel.core.principal import Role
from easel.ids import AccountId, UserId


class SignInFlowStore(Protocol):
    async def start(self, flow: SignInFlow, seconds: float) -> None:
        """Store a flow for so many seconds."""
        ...

    async def consume(self, state: str, browser: str) -> SignInFlow | None:
        """Delete and return a flow that this browser began and that has not expired. RX-40, RX-44"""
        ...


class IdentityStore(Protocol):
    """Identities, by issuer and subject. A deleted person keeps theirs, so that they cannot come back."""

    async def find(self, issuer: str, subject: str) -> KnownIdentity | None: ...

    async def add_person(
        self, user_id: UserId, display_name: str | None, issuer: str, subject: str
    ) -> Member | None:
        """Create a person with this identity and no other way to sign in. None if the name is or was taken.

        Raises `AlreadyExists` if the identity has a person by now.
        """
        ...

    async def connect(self, invitation: str, identity: Identity) -> Member | None:
        """Consume an invitation, by its digest, and give its person this identity. Ends their sign-ins.

        None if the invitation is not valid. Raises `AlreadyExists` if another person has the identity; the
        invitation is not consumed then.
        """
        ...

    async def apply_teams(self, user_id: UserId, teams: Mapping[AccountId, Role]) -> TeamChanges:
        """Set the memberships of a person that came from the claim to these, and leave all others.

        A team keeps an admin who is not disabled. RS-76
        """
        ...


class OpenIdClient(Protocol):
    """Requests to the provider. Its errors contain neither tokens nor codes."""

    async def authorize_url(self, flow: SignInFlow) -> str:
        """Return the address at which the provider asks the person. Raises `ProviderUnreachable`."""
        ...

    async def is_issuer(self, issuer: str | None) -> bool:
        """Return whether a callback with this `iss` may be an answer of the provider. RFC 9207"""
        ...

    async def identify(self, flow: SignInFlow, code: str) -> Identity:
        """Exchange the code and return the identity of the verified ID token.

        Raises `ProviderRefused`, or `ProviderUnreachable` for a token that is not accepted.
        """
        ...

    async def end_session_url(self, redirect_uri: str) -> str | None:
        """Return the address at which the person's session at the provider ends, None if it has none."""
        ...
