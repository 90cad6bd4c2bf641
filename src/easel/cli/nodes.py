"""The commands for tool nodes, and for the tokens that they and others come with."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from easel.cli.terminal import do, run, say, settings_for
from easel.errors import BadInput, BadSettings, NotFound

token_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Tokens beside the owner's own: for tool nodes, for programs, and for more browsers of the owner's.

    There is one user in this version, the owner: every token acts for them, and can be revoked by itself.""",
)

DataOption = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Data folder (EASEL_DATA).")]
NodeIdOption = Annotated[
    str,
    typer.Option(
        "--id", metavar="NAME", help="The node's name: its tools are NAME__Bash, NAME__Read and so on."
    ),
]
UrlOption = Annotated[
    str, typer.Option("--url", metavar="URL", help="The Easel to connect to, such as ws://127.0.0.1:8800/ws.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Its token (EASEL_TOKEN); others on this machine may see what stands here.",
    ),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token.")
]
RootOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="A folder that the tools may touch, as often as needed; this one, if none.",
    ),
]
SandboxOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="MODE", help="How commands are isolated: bwrap or logical (EASEL_SANDBOX_MODE)."
    ),
]
UserOption = Annotated[
    str,
    typer.Option(
        "--user", metavar="USER", help="For whom the token acts: owner, the one user that there is."
    ),
]
KindOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="node (nothing but a tool node), service (a program) or user (as the owner, in a browser).",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="TEXT", help="What to call it in lists and in the audit trail."),
]
OnlyNodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NAME", help="The one node that a token of kind node may be.")
]


def node(
    node_id: NodeIdOption,
    url: UrlOption,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    root: RootOption = None,
    sandbox: SandboxOption = None,
) -> None:
    """This machine as a tool node of an Easel elsewhere: connects outward, and again whenever the connection is lost.

    Example: `EASEL_TOKEN=easel_… easel node --id laptop --url wss://easel.example.org/ws --root ~/work`
    """
    from easel.assembly.sandbox import build_node, choose_sandbox

    wanted = settings_for(sandbox_mode=sandbox)

    async def go(stop: asyncio.Event) -> None:
        in_force = choose_sandbox(wanted)
        say(f"Bash: {in_force.says}")
        given = token or _read_token(token_file) or wanted.token
        if not given:
            raise BadSettings(
                problem="A node needs a token: --token-file, or EASEL_TOKEN; `easel token create --kind node` makes one."
            )
        try:
            client = build_node(
                wanted,
                in_force,
                url=url,
                node_id=node_id,
                token=given,
                roots=root or [Path.cwd()],
                report=say,
            )
        except BadInput as problem:  # told as a program's mistake; here a person gave it
            raise BadInput(problem=problem.message.replace("client.id:", "--id:", 1)) from None
        await client.run(stop)

    run(go)


@token_app.command("create")
def create_token(
    user: UserOption = "owner",
    kind: KindOption = "node",
    name: NameOption = None,
    node: OnlyNodeOption = None,
    data: DataOption = None,
) -> None:
    """Make a token and print it, once: only its digest is kept. Works beside a running Easel.

    Example: `easel token create --user owner --kind node --name laptop`
    """
    from easel.assembly import storage as assembly

    wanted = settings_for(data=data)

    async def go() -> None:
        async with assembly.open_token_admin(wanted) as tokens:
            try:
                made, secret = await tokens.create(user, kind, name=name, node_id=node)
            except BadInput as problem:
                raise BadInput(problem=problem.message.replace("client.id:", "--node:", 1)) from None
            except NotFound:
                raise BadInput(
                    problem=f"There is no user {user[:100]} here: in this version there is one, owner."
                ) from None
        typer.echo(secret)
        typer.echo(
            f"This is {made.token_id}, a {made.kind.value}'s token for {made.user_id}. It is not shown again.",
            err=True,
        )

    do(go)


@token_app.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only of this user.")] = None,
    data: DataOption = None,
) -> None:
    """Every token that was made, what it is for, and whether it was revoked; not the tokens themselves.

    Example: `easel token list --data ./my-easel`
    """
    from easel.assembly import storage as assembly

    wanted = settings_for(data=data)

    async def go() -> None:
        async with assembly.open_token_admin(wanted) as tokens:
            for one in await tokens.list_tokens(user):
                only = f" (only as {one.node_id})" if one.node_id else ""
                ended = f"  revoked {one.revoked_at:%Y-%m-%d %H:%M} UTC" if one.revoked_at else ""
                typer.echo(
                    f"{one.token_id}  {one.kind.value:<7}  {one.user_id}  {one.name}{only}  made {one.created_at:%Y-%m-%d %H:%M} UTC{ended}"
                )

    do(go)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="As `easel token list` shows it: tok_…")
    ],
    data: DataOption = None,
) -> None:
    """End a token for good: it opens nothing more, and what is open by it is closed within seconds, on every instance.

    Example: `easel token revoke tok_01m7f…`
    """
    from easel.assembly import storage as assembly

    wanted = settings_for(data=data)

    async def go() -> None:
        async with assembly.open_token_admin(wanted) as tokens:
            revoked = await tokens.revoke(token_id)
        typer.echo(f"Revoked {revoked.token_id} ({revoked.name}).")

    do(go)


def _read_token(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSettings(problem=f"The token cannot be read from {path} ({problem}).") from None
