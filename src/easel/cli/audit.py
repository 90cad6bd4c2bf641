"""The command `easel audit verify`."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from easel.cli.options import DataOption
from easel.cli.terminal import load_settings, run

if TYPE_CHECKING:
    from easel.assembly.storage import ChainProgress

PROGRESS_SECONDS = 2.0  # between two lines of progress

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Verify the audit trail.")

KnownOption = Annotated[
    list[str] | None,
    typer.Option(
        "--known",
        metavar="SEQ:HASH",
        help="Checkpoint printed by an earlier run (repeatable); also detects a chain that was rewritten.",
    ),
]


@app.command()
def verify(data: DataOption = None, known: KnownOption = None) -> None:
    """Verify the whole audit chain, also while an Easel is running.

    Exits with 1 if a record was changed, removed or moved. Records that EASEL_AUDIT_DAYS removed are no
    break: the chain begins at the signed checkpoint that the command names.

    Example: `easel audit verify --data ./my-easel`
    """
    from easel.assembly.storage import verify_audit

    settings = load_settings(data=data)
    newest: list[ChainProgress] = []

    async def follow_chain(stop: asyncio.Event) -> None:
        report_at = time.monotonic() + PROGRESS_SECONDS
        async with contextlib.aclosing(verify_audit(settings, known or [])) as progress:
            async for reached in progress:
                newest[:] = [reached]
                if stop.is_set():
                    return
                if time.monotonic() >= report_at:
                    report_at = time.monotonic() + PROGRESS_SECONDS
                    typer.echo(f"{reached.seq} of {reached.last} records verified", err=True)

    run(follow_chain)
    [last] = newest
    if last.problem:
        typer.echo(f"BROKEN at record {last.seq}: {last.problem}")
        raise typer.Exit(1)
    if not last.is_end:
        typer.echo(f"Stopped after record {last.seq} of {last.last}; no break so far.", err=True)
        raise typer.Exit(1)
    if last.start:
        typer.echo(
            f"The audit chain is intact: records {last.start.seq + 1} to {last.seq}. It begins after the "
            f"signed checkpoint {last.start}; older records were removed (EASEL_AUDIT_DAYS)."
        )
    else:
        typer.echo(f"The audit chain is intact: {last.seq} records.")
    if last.seq:
        typer.echo(f"Checkpoint: {last.position}")
