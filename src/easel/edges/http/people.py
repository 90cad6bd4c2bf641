"""People, teams and members over HTTP: for operators, for the admins of a team, and about oneself."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from easel.core.account import is_account_name
from easel.core.people import ListedMember, ListedPerson, ListedTeam
from easel.edges.decoding import Params
from easel.edges.http.calls import Call, address_of
from easel.edges.http.wire import PageLimit
from easel.edges.paging import read_page
from easel.errors import NotFound
from easel.host.people.invitations import invitation_link

Name = Annotated[str, Meta(description="1 to 63 characters of a-z, 0-9 and `-`. Never given again.")]
NewAdmin = Annotated[
    str | None,
    Meta(description="Becomes admin of the teams that would be left without one. Only for operators."),
]


NameCursor = Annotated[
    Annotated[str, Meta(pattern=r"\A[a-z0-9-]{1,63}\Z")] | None,
    Meta(description="`next` of the previous page."),
]


class ListPeople(Params):
    limit: PageLimit = 50
    after: NameCursor = None


class AddPerson(Params):
    name: Name
    operator: Annotated[bool, Meta(description="Whether the person may do this too.")] = False


class PersonAdded(Struct):
    name: str
    token: Annotated[str, Meta(description="A token of the person; not shown again.")]
    invitation_url: Annotated[str, Meta(description="A link that sets a password, once, for 7 days.")]

    def __repr__(self) -> str:
        return f"PersonAdded({self.name!r}, …)"


class PersonView(Struct):
    name: str
    display_name: str | None
    operator: bool
    created_at: datetime
    disabled_at: datetime | None


class PersonPage(Struct, omit_defaults=True):
    people: list[PersonView]
    next: str | None = None


class ChangePerson(Params):
    disabled: bool
    new_admin: NewAdmin = None


class DeletePerson(Params):
    new_admin: NewAdmin = None


class Invited(Struct):
    name: str
    invitation_url: str

    def __repr__(self) -> str:
        return f"Invited({self.name!r}, …)"


class AddTeam(Params):
    name: Name
    admin: Annotated[str, Meta(description="The person who is its first admin.")]


class TeamView(Struct):
    name: str
    created_at: datetime
    member_count: int


class TeamPage(Struct, omit_defaults=True):
    teams: list[TeamView]
    next: str | None = None


class TeamAdded(Struct):
    name: str


class SetMember(Params):
    role: Annotated[str, Meta(description="viewer, member or admin")]


class MemberView(Struct):
    name: str
    display_name: str | None
    role: str


class MemberPage(Struct, omit_defaults=True):
    members: list[MemberView]
    next: str | None = None


class AccountView(Struct):
    account: str
    kind: Annotated[str, Meta(description="person or team")]
    role: str


class Me(Struct):
    kind: Annotated[str, Meta(description="person, or service for a program")]
    name: str
    operator: bool
    account: Annotated[str, Meta(description="The account of this request.")]
    role: Annotated[str, Meta(description="The role in it.")]
    accounts: Annotated[
        list[AccountView], Meta(description="What `Easel-Account` may name; a token reaches its own only.")
    ]


class ChangePassword(Params):
    new_password: str
    old_password: Annotated[str | None, Meta(description="Needed if a password is set.")] = None

    def __repr__(self) -> str:
        return "ChangePassword(…)"


# -- people and teams, for operators -------------------------------------------------------------------------


async def add_person(call: Call) -> PersonAdded:
    added = await call.host.people.add(call.params.name, call.principal, is_operator=call.params.operator)
    return PersonAdded(added.user_id, added.token, _link(call, added.user_id, added.invitation))


async def list_people(call: Call) -> PersonPage:
    params: ListPeople = call.params

    async def read(after: str | None, count: int) -> Sequence[ListedPerson]:
        return await call.host.people.list_people(after or "", count)

    return PersonPage(
        *await read_page(
            read, _person, lambda person: person.user_id,
            start=params.after, limit=params.limit, step=params.limit,
        )
    )  # fmt: skip


async def change_person(call: Call) -> PersonView:
    name, params = _named(call, "person"), call.params
    if params.disabled:
        await call.host.people.disable(name, call.principal, params.new_admin)
    else:
        await call.host.people.enable(name, call.principal)
    return _person(await call.host.people.get(name))


async def delete_person(call: Call) -> None:
    await call.host.people.delete(_named(call, "person"), call.principal, call.params.new_admin)


async def invite_person(call: Call) -> Invited:
    name = _named(call, "person")
    return Invited(name, _link(call, name, await call.host.invitations.create(name, call.principal)))


async def add_team(call: Call) -> TeamAdded:
    return TeamAdded(await call.host.teams.add(call.params.name, call.params.admin, call.principal))


async def list_teams(call: Call) -> TeamPage:
    params: ListPeople = call.params

    async def read(after: str | None, count: int) -> Sequence[ListedTeam]:
        return await call.host.teams.list_teams(after or "", count)

    return TeamPage(
        *await read_page(
            read, _team, lambda team: team.account_id,
            start=params.after, limit=params.limit, step=params.limit,
        )
    )  # fmt: skip


async def delete_team(call: Call) -> None:
    await call.host.teams.delete(_named(call, "team"), call.principal)


# -- members, in the account of the request ------------------------------------------------------------------


async def list_members(call: Call) -> MemberPage:
    params: ListPeople = call.params

    async def read(after: str | None, count: int) -> Sequence[ListedMember]:
        return await call.host.teams.list_members(call.principal.account_id, after or "", count)

    return MemberPage(
        *await read_page(
            read, _member, lambda member: member.user_id,
            start=params.after, limit=params.limit, step=params.limit,
        )
    )  # fmt: skip


async def set_member(call: Call) -> MemberView:
    account_id, name = call.principal.account_id, _named(call, "person")
    return _member(await call.host.teams.set_member(account_id, name, call.params.role, call.principal))


async def remove_member(call: Call) -> None:
    await call.host.teams.remove_member(call.principal.account_id, _named(call, "member"), call.principal)


# -- oneself -------------------------------------------------------------------------------------------------


async def get_me(call: Call) -> Me:
    principal = call.principal
    accounts = [AccountView(principal.account_id, "", principal.role)]
    if principal.user_id is not None:
        memberships = await call.host.people.list_memberships(principal.user_id)
        accounts = [AccountView(found.account_id, found.kind, found.role) for found in memberships]
        if principal.sign_in_id is None:  # a token
            accounts = [account for account in accounts if account.account == principal.account_id]
    return Me(
        principal.actor_kind, principal.actor_id, principal.is_operator,
        principal.account_id, principal.role, accounts,
    )  # fmt: skip


async def change_password(call: Call) -> None:
    params: ChangePassword = call.params
    await call.host.passwords.change(
        call.principal, params.old_password, params.new_password, address_of(call.request)
    )


async def leave_team(call: Call) -> None:
    await call.host.teams.leave(call.principal)


def _named(call: Call, what: str) -> str:
    """Return the name in the path. Raises `NotFound` for one that no account can have."""
    name = call.path["name"]
    if not is_account_name(name):
        raise NotFound(what=what, id=name[:100])
    return name


def _link(call: Call, name: str, secret: str) -> str:
    origins = call.request.state.origins
    base_url = origins.public_url or f"http://{call.request.headers.get('host', '')}"
    return invitation_link(base_url, name, secret)


def _person(person: ListedPerson) -> PersonView:
    return PersonView(
        person.user_id, person.display_name, person.is_operator, person.created_at, person.disabled_at
    )


def _team(team: ListedTeam) -> TeamView:
    return TeamView(team.account_id, team.created_at, team.member_count)


def _member(member: ListedMember) -> MemberView:
    return MemberView(member.user_id, member.display_name, member.role)
