"""The command `easel node`: this machine as a tool node of another Easel."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from easel.cli.terminal import load_settings, run
from easel.errors import BadInput, BadSettings

NodeIdOption = Annotated[
    str,
    typer.Option(
        "--id",
        metavar="NAME",
        help="Name of the node; its tools are called NAME__Bash, NAME__Read and so on.",
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
        help="Token of the node (EASEL_TOKEN); other users of this machine can read it in the process list.",
    ),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="File that contains the token.")
]
RootOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Folder that the tools may read and write (repeatable); the current folder by default.",
    ),
]
SandboxOption = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="MODE", help="How commands are isolated: bwrap or logical (EASEL_SANDBOX_MODE)."
    ),
]


def node(
    node_id: NodeIdOption,
    url: UrlOption,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    root: RootOption = None,
    sandbox: SandboxOption = None,
) -> None:
    """Offer the tools of this machine to another Easel. Connects outward and reconnects when the connection
    is lost.

    Example: `EASEL_TOKEN=easel_… easel node --id laptop --url wss://easel.example.org/ws --root ~/work`
    """
    from easel.assembly.sandbox import build_node, choose_sandbox

    settings = load_settings(sandbox_mode=sandbox)

    async def serve_node(stop: asyncio.Event) -> None:
        choice = choose_sandbox(settings)
        typer.echo(f"Bash: {choice.description}")
        secret = token or _read_token(token_file) or settings.token
        if not secret:
            raise BadSettings(
                problem="A node needs a token: give --token-file or EASEL_TOKEN. "
                "`easel token create --kind node` creates one."
            )
        roots = root or [Path.cwd()]
        try:
            client = build_node(
                settings, choice, url=url, node_id=node_id, token=secret, roots=roots, report=typer.echo
            )
        except BadInput as problem:
            # The message names the protocol's field `client.id`; here the user gave the option `--id`.
            raise BadInput(problem=problem.message.replace("client.id", "--id", 1)) from None
        await client.run(stop)

    run(serve_node)


def _read_token(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSettings(problem=f"The token cannot be read from {path} ({problem}).") from None
