"""Sign-in by OpenID Connect: started, finished by the callback, and ended at the provider too. RS-76

A flow is in the database, so any instance finishes it, and in one browser only. Owns who may sign in: the
person of an identity, an invited one, or a new one whose verified e-mail the settings allow. Owns the audit
records of failures. Does not know cookies, pages or the wire of the provider.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from easel.core.account import Member
from easel.core.openid.flow import (
    CALLBACK_PATH,
    FLOW_SECONDS,
    HOME,
    SignInFlow,
    callback_address,
    digest_of_browser,
)
from easel.core.openid.identity import Identity, names_for
from easel.core.openid.provider import OpenIdProvider
from easel.core.people import RESERVED, in_own_account
from easel.core.principal import ANONYMOUS, Principal, of_account
from easel.core.token import digest_of
from easel.errors import AlreadyExists, BadInput, Forbidden, HostError
from easel.host.audit.audit import Audit
from easel.host.auth.throttle import SignInThrottle
from easel.host.people.people import NOT_ISOLATED, OnDeparture
from easel.host.ports import IdentityStore, OpenIdClient, SignInFlowStore
from easel.ids import UserId

STATE_BYTES = 32
VERIFIER_BYTES = 48  # 64 characters
MAX_STATE_LENGTH = 200
MAX_CODE_LENGTH = 4_096
MAX_RANDOM_NAMES = 5
_USED = (
    "This sign-in was used already, is older than 10 minutes, or was begun in another browser. Sign in again "
    "in this browser."
)
_DISABLED = "Your account here is disabled or deleted. Ask an operator of this Easel."
_NOT_ALLOWED = (
    "{provider} has signed you in, but you have no account here yet. Ask an operator of this Easel for an "
    "invitation, or to allow your verified e-mail address."
)
_INVALID = "This invitation was used, has expired or was replaced. Ask who sent it to you for a new one."
_TAKEN = "This identity at {provider} belongs to another person here. Sign in there with another account."


@dataclass(frozen=True, slots=True)
class SignInCallback:
    """A request to the address of the callback, and the cookie of the browser."""

    state: str = field(repr=False)
    code: str | None = field(repr=False)
    error: str | None
    issuer: str | None
    browser: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignedIn:
    person: Principal
    target: str


class OpenIdSignIn:
    def __init__(
        self,
        provider: OpenIdProvider,
        *,
        public_url: str,
        allows_loopback: bool,
        is_isolated: bool,
        flows: SignInFlowStore,
        identities: IdentityStore,
        client: OpenIdClient,
        throttle: SignInThrottle,
        audit: Audit,
        on_departure: OnDeparture,
        new_suffix: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> None:
        """`is_isolated`: whether commands of one person cannot reach the files of another."""
        self.provider = provider
        self._public_url = public_url
        self._allows_loopback = allows_loopback
        self._is_isolated = is_isolated
        self._flows = flows
        self._identities = identities
        self._client = client
        self._throttle = throttle
        self._audit = audit
        self._on_departure = on_departure
        self._new_suffix = new_suffix
        self._log = structlog.get_logger("openid")

    async def start(self, host: str, browser: str, target: str, *, invitation: str | None = None) -> str:
        """Begin a sign-in in this browser. Returns the address at which the provider asks the person.

        Raises `BadInput`, or the error of the provider. RX-39
        """
        flow = SignInFlow(
            state=secrets.token_urlsafe(STATE_BYTES),
            code_verifier=secrets.token_urlsafe(VERIFIER_BYTES),
            nonce=secrets.token_urlsafe(STATE_BYTES),
            browser=digest_of_browser(browser),
            issuer=self.provider.issuer,
            redirect_uri=callback_address(self._public_url, host, allows_loopback=self._allows_loopback),
            target=target,
            invitation=None if invitation is None else digest_of(invitation),
        )
        url = await self._client.authorize_url(flow)
        await self._flows.start(flow, FLOW_SECONDS)
        return url

    async def finish(self, callback: SignInCallback, address: str) -> SignedIn:
        """Sign the person in, or the error says what to do instead.

        Raises `BadInput`, `Forbidden`, `TooManyFailures`, or the error of the provider. RX-44
        """
        try:
            flow = await self._consume(callback, address)
            identity = await self._identify(flow, callback)
            member = await self._find_member(flow, identity)
        except HostError as problem:
            details = {"error": problem.code, "problem": problem.message, "address": address}
            self._record_failure(details)
            raise
        await self._apply_teams(member, identity)
        return SignedIn(in_own_account(member), flow.target)

    async def end_session_url(self, host: str) -> str | None:
        """Return where the session at the provider ends, None if it cannot be ended there."""
        try:
            back = callback_address(self._public_url, host, allows_loopback=self._allows_loopback)
            return await self._client.end_session_url(back.removesuffix(CALLBACK_PATH) + HOME)
        except HostError as problem:
            self._log.info("openid.session_not_ended", problem=problem.message)
            return None

    # -- the steps of the callback ---------------------------------------------------------------------------

    async def _consume(self, callback: SignInCallback, address: str) -> SignInFlow:
        """Return the flow of the callback. Only an unknown one counts as a failure of its address."""
        flow = None
        if callback.browser and 0 < len(callback.state) <= MAX_STATE_LENGTH:
            flow = await self._flows.consume(callback.state, digest_of_browser(callback.browser))
        if flow is None or flow.issuer != self.provider.issuer:
            self._throttle.check(address)
            self._throttle.note_failure(address)
            raise BadInput(problem=_USED)
        return flow

    async def _identify(self, flow: SignInFlow, callback: SignInCallback) -> Identity:
        name = self.provider.name
        if not await self._client.is_issuer(callback.issuer):
            raise BadInput(problem=f"The answer does not come from {name}. Sign in again.")
        if callback.error is not None or not callback.code or len(callback.code) > MAX_CODE_LENGTH:
            raise BadInput(problem=_describe_refusal(name, callback.error))
        return await self._client.identify(flow, callback.code)

    async def _find_member(self, flow: SignInFlow, identity: Identity) -> Member:
        """Return the person of this identity in their own account; connect or make them first if allowed."""
        if flow.invitation is not None:
            return await self._connect(flow.invitation, identity)
        known = await self._identities.find(identity.issuer, identity.subject)
        if known is None:
            return await self._add_person(identity)
        if known.member is None:
            raise Forbidden.with_message(_DISABLED)
        return known.member

    async def _connect(self, invitation: str, identity: Identity) -> Member:
        try:
            member = await self._identities.connect(invitation, identity)
        except AlreadyExists:
            raise Forbidden.with_message(_TAKEN.format(provider=self.provider.name)) from None
        if member is None:
            raise Forbidden.with_message(_INVALID)
        person = in_own_account(member)
        details = {"by": "openid", "issuer": identity.issuer}
        await self._audit.record(person, "invitation.accepted", subject=member.account_id, details=details)
        return member

    async def _add_person(self, identity: Identity) -> Member:
        if not self.provider.allowed.allows(identity.email):
            raise Forbidden.with_message(_NOT_ALLOWED.format(provider=self.provider.name))
        if not self._is_isolated:
            raise Forbidden.with_message(NOT_ISOLATED)
        names = [*names_for(identity.name_hint)]
        names += [f"{names[0]}-{self._new_suffix()}" for _ in range(MAX_RANDOM_NAMES)]
        for name in names:
            if name in RESERVED:
                continue
            try:
                member = await self._identities.add_person(
                    UserId(name), identity.display_name, identity.issuer, identity.subject
                )
            except AlreadyExists:  # by another callback at the same time
                raise BadInput(problem=_USED) from None
            if member is not None:
                details = {"by": "openid", "issuer": identity.issuer}
                await self._audit.record(
                    in_own_account(member), "person.added", subject=name, details=details
                )
                return member
        raise Forbidden.with_message("All names like yours are taken. Ask an operator for an invitation.")

    async def _apply_teams(self, member: Member, identity: Identity) -> None:
        """Set the memberships that come from the claim, if there is one. RS-76"""
        if not self.provider.teams_claim:
            return
        person = in_own_account(member)
        changes = await self._identities.apply_teams(member.person.user_id, identity.teams)
        for team, role in changes.given.items():
            details = {"team": team, "role": role, "by": "openid"}
            await self._audit.record(
                of_account(person, team), "member.set", subject=member.account_id, details=details
            )
        for team in changes.removed:
            details = {"team": team, "by": "openid"}
            await self._audit.record(
                of_account(person, team), "member.removed", subject=member.account_id, details=details
            )
        if changes.removed:
            await self._on_departure()
        if changes.unknown or changes.kept:
            self._log.info("openid.teams_ignored", unknown=changes.unknown, last_admin_of=changes.kept)

    def _record_failure(self, details: dict[str, str]) -> None:
        details = {"by": "openid", "issuer": self.provider.issuer, **details}
        self._audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)


def _describe_refusal(provider: str, error: str | None) -> str:
    if error == "access_denied":
        return f"You were not signed in: {provider} or you refused it. Sign in again."
    shown = f": {error[:60]}" if error and error.isascii() and error.replace("_", "").isalpha() else ""
    return f"You were not signed in, because {provider} sent no code{shown}. Sign in again."
