"""The commands `easel user` and `easel team`: people, teams and members. They work beside a running Easel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easel.cli.options import DataOption
from easel.cli.terminal import load_settings, run_short

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from easel.assembly.people import PeopleServices
    from easel.core.principal import Principal
    from easel.settings import Settings

PAGE_SIZE = 200

users = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Add, list, disable, enable and delete people. For the operator of this host.

    Example: `easel user add ada`, then send her the link that it prints""",
)
teams = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Add, list and delete teams, and change their members.

    Example: `easel team add web --admin ada`, then `easel team member add web bob`""",
)
members = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Add, list and remove the members of a team, and set their roles.

    Example: `easel team member add web bob --role viewer`""",
)
teams.add_typer(members, name="member")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name: a-z, 0-9 and -.")]
TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="Name of the team.")]
NewAdminOption = Annotated[
    str | None,
    typer.Option(
        "--new-admin",
        metavar="NAME",
        help="Person to become admin of each team that would be left without one.",
    ),
]
RoleOption = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="viewer (reads), member (also works) or admin.")
]


# -- people --------------------------------------------------------------------------------------------------


@users.command("add")
def add_user(
    name: NameArgument,
    operator: Annotated[
        bool, typer.Option("--operator", help="The person may administer this host, as you do.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Add a person. Prints a token of theirs and an invitation link, once: only digests are stored.

    The link sets a display name and a password. It can be used once, within 7 days.

    Example: `easel user add ada`
    """

    async def add(services: "PeopleServices", settings: "Settings") -> None:
        added = await services.people.add(name, _operator(), is_operator=operator)
        typer.echo(f"Token: {added.token}")
        typer.echo(f"Invitation: {_link(settings, name, added.invitation)}")
        typer.echo(f"Added {name}. Send the link to this person; it is not shown again.", err=True)

    _run(data, add)


@users.command("invite")
def invite_user(name: NameArgument, data: DataOption = None) -> None:
    """Print a new invitation link, for example for a forgotten password. Earlier links end.

    Example: `easel user invite ada`
    """

    async def invite(services: "PeopleServices", settings: "Settings") -> None:
        secret = await services.invitations.create(name, _operator())
        typer.echo(f"Invitation: {_link(settings, name, secret)}")

    _run(data, invite)


@users.command("list")
def list_users(data: DataOption = None) -> None:
    """List the people of this host.

    Example: `easel user list`
    """

    async def print_people(services: "PeopleServices", _: "Settings") -> None:
        after = ""
        while people := await services.people.list_people(after, PAGE_SIZE):
            for person in people:
                shown = f"  ({person.display_name})" if person.display_name else ""
                operator = "  operator" if person.is_operator else ""
                disabled = f"  disabled {person.disabled_at:%Y-%m-%d %H:%M} UTC" if person.disabled_at else ""
                typer.echo(f"{person.user_id}{shown}{operator}{disabled}")
            after = people[-1].user_id

    _run(data, print_people)


@users.command("disable")
def disable_user(name: NameArgument, new_admin: NewAdminOption = None, data: DataOption = None) -> None:
    """Disable a person: their tokens and connections end within seconds, and their runs are cancelled.

    Example: `easel user disable ada --new-admin bob`
    """

    async def disable(services: "PeopleServices", _: "Settings") -> None:
        await services.people.disable(name, _operator(), new_admin)
        typer.echo(f"Disabled {name}.")

    _run(data, disable)


@users.command("enable")
def enable_user(name: NameArgument, data: DataOption = None) -> None:
    """Let a disabled person sign in again, by password. Their tokens stay revoked.

    Example: `easel user enable ada`
    """

    async def enable(services: "PeopleServices", _: "Settings") -> None:
        await services.people.enable(name, _operator())
        typer.echo(f"Enabled {name}. `easel user invite {name}` prints a link to set a new password.")

    _run(data, enable)


@users.command("delete")
def delete_user(name: NameArgument, new_admin: NewAdminOption = None, data: DataOption = None) -> None:
    """Delete a person with all that they own. Their work in teams stays. The name is not given again.

    Example: `easel user delete ada --new-admin bob`
    """

    async def delete(services: "PeopleServices", _: "Settings") -> None:
        await services.people.delete(name, _operator(), new_admin)
        typer.echo(f"Deleted {name}.")

    _run(data, delete)


# -- teams ---------------------------------------------------------------------------------------------------


@teams.command("add")
def add_team(
    name: NameArgument,
    admin: Annotated[str, typer.Option("--admin", metavar="NAME", help="Person who is its first admin.")],
    data: DataOption = None,
) -> None:
    """Add a team. Its admin adds the other members. People and teams share one namespace of names.

    Example: `easel team add web --admin ada`
    """

    async def add(services: "PeopleServices", _: "Settings") -> None:
        await services.teams.add(name, admin, _operator())
        typer.echo(f"Added the team {name}; its admin is {admin}.")

    _run(data, add)


@teams.command("list")
def list_teams(data: DataOption = None) -> None:
    """List the teams of this host with the number of their members.

    Example: `easel team list`
    """

    async def print_teams(services: "PeopleServices", _: "Settings") -> None:
        after = ""
        while found := await services.teams.list_teams(after, PAGE_SIZE):
            for team in found:
                typer.echo(f"{team.account_id}  {team.member_count} members")
            after = found[-1].account_id

    _run(data, print_teams)


@teams.command("delete")
def delete_team(name: NameArgument, data: DataOption = None) -> None:
    """Delete a team with all that it owns. The name is not given again.

    Example: `easel team delete web`
    """

    async def delete(services: "PeopleServices", _: "Settings") -> None:
        await services.teams.delete(name, _operator())
        typer.echo(f"Deleted the team {name}.")

    _run(data, delete)


@members.command("list")
def list_members(team: TeamArgument, data: DataOption = None) -> None:
    """List the members of a team with their roles.

    Example: `easel team member list web`
    """

    async def print_members(services: "PeopleServices", _: "Settings") -> None:
        await services.teams.check_team(team)
        after = ""
        while found := await services.teams.list_members(team, after, PAGE_SIZE):
            for member in found:
                shown = f"  ({member.display_name})" if member.display_name else ""
                typer.echo(f"{member.user_id}  {member.role}{shown}")
            after = found[-1].user_id

    _run(data, print_members)


@members.command("add")
def add_member(
    team: TeamArgument, name: NameArgument, role: RoleOption = "member", data: DataOption = None
) -> None:
    """Add a person to a team. Nothing in a team is private to a member.

    Example: `easel team member add web bob --role viewer`
    """
    _set_member(team, name, role, None, data, is_member=False)


@members.command("set")
def set_member(
    team: TeamArgument,
    name: NameArgument,
    role: RoleOption,
    new_admin: NewAdminOption = None,
    data: DataOption = None,
) -> None:
    """Change the role of a member. Open connections have the new role within seconds.

    Example: `easel team member set web bob --role admin`
    """
    _set_member(team, name, role, new_admin, data, is_member=True)


@members.command("remove")
def remove_member(
    team: TeamArgument, name: NameArgument, new_admin: NewAdminOption = None, data: DataOption = None
) -> None:
    """Remove a member: their runs in the team are cancelled, and their tokens and nodes there end.

    Example: `easel team member remove web bob`
    """

    async def remove(services: "PeopleServices", _: "Settings") -> None:
        await services.teams.remove_member(team, name, _operator(), new_admin)
        typer.echo(f"Removed {name} from {team}.")

    _run(data, remove)


def _set_member(
    team: str, name: str, role: str, new_admin: str | None, data: Path | None, *, is_member: bool
) -> None:
    async def change(services: "PeopleServices", _: "Settings") -> None:
        member = await services.teams.set_member(
            team, name, role, _operator(), new_admin, is_member=is_member
        )
        typer.echo(f"{name} is {member.role} of {team}.")

    _run(data, change)


def _run(data: Path | None, work: "Callable[[PeopleServices, Settings], Awaitable[None]]") -> None:
    from easel.assembly.people import open_people_admin

    settings = load_settings(data=data)

    async def administer() -> None:
        async with open_people_admin(settings) as services:
            await work(services, settings)

    run_short(administer)


def _operator() -> "Principal":
    from easel.assembly.people import COMMAND_LINE

    return COMMAND_LINE


def _link(settings: "Settings", name: str, secret: str) -> str:
    from easel.assembly.people import invitation_link
    from easel.canvas_folder.api_client import local_address

    return invitation_link(settings.public_url or local_address(settings.host, settings.port), name, secret)
