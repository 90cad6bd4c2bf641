"""The commands `easel token create`, `list` and `revoke`."""

from typing import Annotated

import typer

from easel.cli.options import DataOption
from easel.cli.terminal import load_settings, run_short
from easel.errors import BadInput, NotFound

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Manage tokens for tool nodes, for programs, and for browsers of people.

    A token has a person and an account: the person's own, or a team's. It never has more rights there than
    the person has. Each can be revoked.""",
)

UserOption = Annotated[
    str, typer.Option("--user", metavar="USER", help="Person who acts with the token, or answers for it.")
]
AccountOption = Annotated[
    str | None,
    typer.Option("--account", metavar="NAME", help="Account that the token reaches; by default USER's own."),
]
RoleOption = Annotated[
    str,
    typer.Option("--role", metavar="ROLE", help="The most that the token may do: viewer, member or admin."),
]
DaysOption = Annotated[
    int | None, typer.Option("--days", metavar="DAYS", help="Days until it expires; by default never.")
]
KindOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="node (a tool node and nothing else), service (a program) or user (the person).",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="TEXT", help="Name of the token in lists and in the audit trail."),
]
OnlyNodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NAME",
        help="The only node that a token of kind node may connect as; --name by default.",
    ),
]


@app.command("create")
def create_token(
    user: UserOption = "owner",
    kind: KindOption = "node",
    account: AccountOption = None,
    role: RoleOption = "admin",
    name: NameOption = None,
    node: OnlyNodeOption = None,
    days: DaysOption = None,
    data: DataOption = None,
) -> None:
    """Create a token and print it, once: only its digest is stored. Works while an Easel is running.

    Examples: `easel token create --user owner --kind node --name laptop`;
    `easel token create --user ada --account devs --kind service --role viewer --days 90`
    """
    from easel.assembly.storage import open_token_admin
    from easel.core.token import TokenKind

    settings = load_settings(data=data)

    async def create() -> None:
        async with open_token_admin(settings) as tokens:
            try:
                token, secret = await tokens.create(
                    user, kind, account_id=account, role=role, name=name, node_id=node, days=days
                )
            except BadInput as problem:
                # The message names the protocol's field `client.id`; here the user gave the option `--node`.
                raise BadInput(problem=problem.message.replace("client.id", "--node", 1)) from None
            except NotFound:
                where = "" if account is None else f" who is a member of {account[:100]}"
                raise BadInput(
                    problem=f"There is no user {user[:100]}{where}; `easel user list` lists them."
                ) from None
        typer.echo(secret)
        note = f"Created {token.token_id}, a {token.kind.value} token of {token.user_id}"
        note += f" for {token.account_id}, with the role {token.role.value} at most."
        if token.expires_at is not None:
            note += f" It expires on {token.expires_at:%Y-%m-%d}."
        if token.node_id is not None:
            note += f" It can connect only as the node {token.node_id}."
        elif token.kind is TokenKind.NODE:
            note += " It will be bound to the first node that connects with it."
        typer.echo(f"{note} The token is not shown again.", err=True)

    run_short(create)


@app.command("list")
def list_tokens(
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Only the tokens of this account.")
    ] = None,
    data: DataOption = None,
) -> None:
    """List every token with its kind and whether it was revoked; the secrets are not stored.

    Example: `easel token list --data ./my-easel`
    """
    from easel.assembly.storage import open_token_admin

    settings = load_settings(data=data)

    async def print_tokens() -> None:
        async with open_token_admin(settings) as tokens:
            for token in await tokens.list_tokens(account):
                only = f" (only as {token.node_id})" if token.node_id else ""
                created = f"created {token.created_at:%Y-%m-%d %H:%M} UTC"
                revoked = f"  revoked {token.revoked_at:%Y-%m-%d %H:%M} UTC" if token.revoked_at else ""
                expires = f"  expires {token.expires_at:%Y-%m-%d}" if token.expires_at else ""
                used = f"  last used {token.last_used_at:%Y-%m-%d %H:%M} UTC" if token.last_used_at else ""
                about = f"{token.kind.value:<7}  {token.account_id}  {token.user_id}  {token.role.value}"
                typer.echo(
                    f"{token.token_id}  {about}  {token.name}{only}  {created}{expires}{used}{revoked}"
                )

    run_short(print_tokens)


@app.command("revoke")
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="Id of the token in `easel token list`: tok_…")
    ],
    data: DataOption = None,
) -> None:
    """Revoke a token: new sign-ins are refused at once, and its open connections are closed within seconds.

    Example: `easel token revoke tok_01m7f…`
    """
    from easel.assembly.storage import open_token_admin

    settings = load_settings(data=data)

    async def revoke() -> None:
        async with open_token_admin(settings) as tokens:
            revoked = await tokens.revoke(token_id)
        typer.echo(f"Revoked {revoked.token_id} ({revoked.name}).")

    run_short(revoke)
