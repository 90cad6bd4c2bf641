"""Who is signed in by an identity, and what counts as a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from easel.core.account import Member, Person
from easel.core.openid.flow import digest_of_browser
from easel.core.openid.identity import Identity, KnownIdentity, TeamChanges
from easel.core.openid.provider import OpenIdProvider, parse_allowed
from easel.core.principal import Role
from easel.errors import AlreadyExists, BadInput, Forbidden, HostError, TooManyFailures
from easel.host.auth.throttle import SignInThrottle
from easel.host.openid.sign_in import OpenIdSignIn, SignInCallback
from easel.ids import AccountId, UserId
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.openid.flow import SignInFlow
    from easel.host.audit.audit import Audit

ISSUER, BROWSER, ADDRESS = "https://issuer.example", "b" * 43, "192.0.2.1"


@dataclass
class World:
    """The stores, the provider and the audit trail."""

    identity: Identity = Identity(ISSUER, "1", "ada@example.com", "ada")  # noqa: RUF009 - frozen
    flows: dict[str, SignInFlow] = field(default_factory=dict[str, Any])
    people: dict[tuple[str, str], Member | None] = field(default_factory=dict[Any, Any])
    taken: set[str] = field(default_factory=lambda: {"owner"})
    records: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[Any])
    teams: list[Mapping[Any, Any]] = field(default_factory=list[Any])

    # -- flows and the provider

    async def start(self, flow: SignInFlow, seconds: float) -> None:
        self.flows[flow.state] = flow

    async def consume(self, state: str, browser: str) -> SignInFlow | None:
        flow = self.flows.get(state)
        return self.flows.pop(state) if flow and flow.browser == browser else None

    async def authorize_url(self, flow: SignInFlow) -> str:
        return flow.state

    async def is_issuer(self, issuer: str | None) -> bool:
        return issuer == ISSUER

    async def identify(self, flow: SignInFlow, code: str) -> Identity:
        return self.identity

    async def end_session_url(self, redirect_uri: str) -> str | None:
        return redirect_uri

    # -- identities

    async def find(self, issuer: str, subject: str) -> KnownIdentity | None:
        key = issuer, subject
        return KnownIdentity(UserId("ada"), self.people[key]) if key in self.people else None

    async def add_person(
        self, user_id: UserId, display_name: str | None, issuer: str, subject: str
    ) -> Member | None:
        if (issuer, subject) in self.people:
            raise AlreadyExists(what="identity", id="")
        if user_id in self.taken:
            return None
        self.taken.add(user_id)
        member = Member(AccountId(user_id), Person(user_id, is_operator=False), Role.ADMIN)
        self.people[issuer, subject] = member
        return member

    async def connect(self, invitation: str, identity: Identity) -> Member | None:
        return None

    async def apply_teams(self, user_id: UserId, teams: Mapping[Any, Any]) -> TeamChanges:
        self.teams.append(teams)
        return TeamChanges()

    # -- the audit trail

    async def record(self, principal: Any, action: str, **given: Any) -> None:
        self.records.append((action, given["details"]))

    def record_throttled(self, principal: Any, action: str, *, details: Mapping[str, Any]) -> None:
        self.records.append((action, details))


async def ignore_departure() -> None:
    pass


def service(world: World, *, is_isolated: bool = True, claim: str = "") -> OpenIdSignIn:
    return OpenIdSignIn(
        OpenIdProvider(ISSUER, "easel", "secret", parse_allowed("@example.com"), claim),
        public_url="https://easel.example",
        allows_loopback=False,
        is_isolated=is_isolated,
        flows=world,
        identities=world,
        client=world,
        throttle=SignInThrottle(3),
        audit=cast("Audit", world),
        on_departure=ignore_departure,
        new_suffix=lambda: "abcdef",
    )


async def sign_in(openid: OpenIdSignIn, **changes: Any) -> str:
    """Return the id of the person who is signed in."""
    state = await openid.start("easel.example", BROWSER, "/")
    callback = {"state": state, "code": "code", "error": None, "issuer": ISSUER, "browser": BROWSER}
    signed_in = await openid.finish(SignInCallback(**{**callback, **changes}), ADDRESS)
    return str(signed_in.person.user_id)


@rule("RS-76")
async def test_new_person_gets_a_free_name_and_no_team() -> None:
    world = World()
    world.taken |= {"ada", "ada-2"}
    assert await sign_in(service(world)) == "ada-3"
    assert await sign_in(service(world)) == "ada-3", "the identity is known now"
    assert world.teams == [], "without the setting a claim gives nothing"
    assert [action for action, _ in world.records] == ["person.added"]
    world.identity = Identity(ISSUER, "2", "me@example.com", "me")
    assert await sign_in(service(world)) == "me-2", "`me` is a name of Easel itself"
    world.taken |= {"ada", *(f"ada-{number}" for number in range(2, 30))}
    world.identity = Identity(ISSUER, "3", "ada@example.com", "ada")
    assert await sign_in(service(world)) == "ada-abcdef"


@rule("RS-76")
@pytest.mark.parametrize("email", [None, "ada@elsewhere.example"])
async def test_identity_without_an_allowed_address_makes_no_person(email: str | None) -> None:
    world = World(Identity(ISSUER, "1", email, "ada"))
    with pytest.raises(Forbidden, match="no account here yet"):
        await sign_in(service(world))
    assert world.people == {}
    [(action, details)] = world.records
    assert action == "sign_in.failed"
    assert (details["by"], details["issuer"], details["address"]) == ("openid", ISSUER, ADDRESS)


async def test_second_person_needs_isolated_commands() -> None:
    world = World()
    with pytest.raises(Forbidden, match="EASEL_SANDBOX_MODE"):
        await sign_in(service(world, is_isolated=False))
    assert world.people == {}


@rule("RS-76")
async def test_disabled_person_and_wrong_invitation_are_refused() -> None:
    world = World(people={(ISSUER, "1"): None})
    with pytest.raises(Forbidden, match="disabled or deleted"):
        await sign_in(service(world))
    openid = service(World())
    state = await openid.start("easel.example", BROWSER, "/", invitation="used")
    with pytest.raises(Forbidden, match="invitation"):
        await openid.finish(SignInCallback(state, "code", None, ISSUER, BROWSER), ADDRESS)


@rule("RX-44")
@pytest.mark.parametrize(
    "changes",
    [
        {"state": ""},
        {"state": "x" * 201},
        {"browser": ""},
        {"browser": "c" * 43},
        {"browser": digest_of_browser(BROWSER)},
        {"issuer": None},
        {"issuer": "https://evil.example"},
        {"code": None},
        {"code": ""},
        {"code": "x" * 4_097},
        {"error": "access_denied"},
        {"error": "<script>"},
    ],
    ids=str,
)
async def test_callback_that_is_not_of_the_flow_is_refused(changes: dict[str, Any]) -> None:
    world = World()
    with pytest.raises(BadInput) as caught:
        await sign_in(service(world), **changes)
    assert world.people == {}
    assert "<script>" not in caught.value.message


async def test_unknown_callbacks_slow_their_address_down_and_flows_of_it_still_end() -> None:
    world = World()
    openid = service(world)
    problems: list[type[HostError]] = []
    for _ in range(6):
        with pytest.raises((BadInput, TooManyFailures)) as caught:
            await sign_in(openid, state="unknown")
        problems.append(type(caught.value))
    assert problems == [BadInput] * 3 + [TooManyFailures] * 3
    assert await sign_in(openid) == "ada", "an attacker behind the same proxy locks nobody out"


async def test_session_at_the_provider_ends_at_our_home_page() -> None:
    assert await service(World()).end_session_url("evil.example") == "https://easel.example/"
