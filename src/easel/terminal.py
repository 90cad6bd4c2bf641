"""How a command begins, says something and ends: its settings, its signals, and one sentence when it cannot go on."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import typer

from easel import settings
from easel.errors import BadSettings, HostError
from easel.settings import Settings


def settings_for(**given: Any) -> Settings:
    from easel import logs

    try:
        wanted = settings.load(**given)
        logs.set_up(wanted.log)
        logs.warn_of(settings.unknown_variables())
    except BadSettings as problem:
        refuse(problem)
    return wanted


def say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()


def refuse(problem: HostError) -> NoReturn:
    typer.echo(f"easel: {problem.message}", err=True)
    raise typer.Exit(2)


def run(go: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Until it is done or a signal says stop; a second signal stops at once."""
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _once(loop, number, stop))
        await go(stop)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except HostError as problem:
        refuse(problem)


def _once(loop: asyncio.AbstractEventLoop, number: signal.Signals, stop: asyncio.Event) -> Callable[[], None]:
    def hear() -> None:
        typer.echo("Stopping; once more to stop at once.", err=True)
        loop.remove_signal_handler(number)
        stop.set()

    return hear
