"""The command `easel doctor`: prints the checks of `easel.cli.checks`."""

import asyncio

import typer

from easel.cli.options import DataOption, PortOption
from easel.cli.terminal import load_settings, run_short


def doctor(data: DataOption = None, port: PortOption = None) -> None:
    """Check everything that Easel needs, and print what is wrong and what to do. Changes nothing.

    The model is checked by one small request: that of the owner if an Easel is running, otherwise the host's.

    Exits with 1 if a check fails.

    Example: `easel doctor --data ./my-easel`
    """
    from easel.canvas_folder.api_client import is_running_and_ready
    from easel.cli.checks import Verdict, run_checks

    settings = load_settings(data=data, port=port)
    verdicts: list[Verdict] = []

    async def print_checks() -> None:
        async for check in run_checks(settings, await asyncio.to_thread(is_running_and_ready, settings)):
            verdicts.append(check.verdict)
            typer.echo(f"{check.verdict.value:<4} {check.name}: {check.text}")

    run_short(print_checks)
    if Verdict.FAIL in verdicts:
        raise typer.Exit(1)
