"""The commands `easel token create`, `list` and `revoke`."""

from typing import Annotated

import typer

from easel.cli.options import DataOption
from easel.cli.terminal import load_settings, run_short
from easel.errors import BadInput, NotFound

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Manage tokens for tool nodes, for programs, and for more browsers of the owner.

    This version has one user, the owner: every token acts for the owner. Each can be revoked.""",
)

UserOption = Annotated[
    str, typer.Option("--user", metavar="USER", help="User that the token acts for: owner, the only user.")
]
KindOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="node (a tool node and nothing else), service (a program) or user (the owner, in a browser).",
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
    name: NameOption = None,
    node: OnlyNodeOption = None,
    data: DataOption = None,
) -> None:
    """Create a token and print it, once: only its digest is stored. Works while an Easel is running.

    Example: `easel token create --user owner --kind node --name laptop`
    """
    from easel.assembly.storage import open_token_admin
    from easel.core.token import TokenKind

    settings = load_settings(data=data)

    async def create() -> None:
        async with open_token_admin(settings) as tokens:
            try:
                token, secret = await tokens.create(user, kind, name=name, node_id=node)
            except BadInput as problem:
                # The message names the protocol's field `client.id`; here the user gave the option `--node`.
                raise BadInput(problem=problem.message.replace("client.id", "--node", 1)) from None
            except NotFound:
                raise BadInput(
                    problem=f"There is no user {user[:100]}: this version has one user, owner."
                ) from None
        typer.echo(secret)
        note = f"Created {token.token_id}, a {token.kind.value} token for {token.account_id}."
        if token.node_id is not None:
            note += f" It can connect only as the node {token.node_id}."
        elif token.kind is TokenKind.NODE:
            note += " It will be bound to the first node that connects with it."
        typer.echo(f"{note} The token is not shown again.", err=True)

    run_short(create)


@app.command("list")
def list_tokens(
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Only the tokens of this user.")
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
            for token in await tokens.list_tokens(user):
                only = f" (only as {token.node_id})" if token.node_id else ""
                created = f"created {token.created_at:%Y-%m-%d %H:%M} UTC"
                revoked = f"  revoked {token.revoked_at:%Y-%m-%d %H:%M} UTC" if token.revoked_at else ""
                about = f"{token.kind.value:<7}  {token.account_id}  {token.name}{only}"
                typer.echo(f"{token.token_id}  {about}  {created}{revoked}")

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
