"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on (EASEL_HOST, 127.0.0.1); 0.0.0.0 listens on all addresses.",
    ),
]
PortOption = Annotated[
    str | None,
    typer.Option("--port", metavar="PORT", help="Port to listen on (EASEL_PORT, 8800); 0 picks a free one."),
]
DataOption = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Data folder (EASEL_DATA).")]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Address of the running Easel (EASEL_HOST and EASEL_PORT)."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Token (EASEL_TOKEN, or the one in the data folder); other users can read it in `ps`.",
    ),
]
AccountOption = Annotated[
    str | None,
    typer.Option(
        "--account",
        metavar="NAME",
        help="Account that the token must be of, a person or a team; a token reaches no other.",
    ),
]
