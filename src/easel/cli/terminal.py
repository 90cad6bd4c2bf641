"""How a command begins, says something and ends: its settings, its signals, and one sentence when it cannot go on."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import typer

from easel import settings
from easel.errors import BadSettings, HostError
from easel.settings import Settings

Answer = TypeVar("Answer")


def settings_for(**given: Any) -> Settings:
    from easel import logs

    try:
        wanted = settings.load(**given)
        logs.set_up(wanted.log)
        logs.warn_of({name: settings.nearest(name) for name in settings.unknown_variables()})
    except BadSettings as problem:
        refuse(problem)
    return wanted


def say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()


def refuse(problem: HostError) -> NoReturn:
    typer.echo(f"easel: {problem.message}", err=True)
    raise typer.Exit(2)


class _Stopped(Exception):
    """A signal came before there was anything to bring to an end."""


def run(go: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Until it is done or has heeded the event that a signal sets; a second signal stops at once."""

    async def main() -> None:
        await go(_heard("Stopping; once more to stop at once."))

    try:
        _run(main())
    except _Stopped:
        return  # as it was told


def do(go: Callable[[], Awaitable[None]]) -> None:
    """A short thing: the first signal ends it where it stands, and whoever started it is told that it was not done."""

    async def main() -> None:
        await unless_stopped(_heard("Stopped before it was done."), go())

    try:
        _run(main())
    except _Stopped:
        raise typer.Exit(1) from None


async def unless_stopped(stop: asyncio.Event, work: Awaitable[Answer]) -> Answer:
    """What nobody has to wait for once they have said stop, such as a database that does not answer."""
    doing, told = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([doing, told], return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise _Stopped
        return doing.result()
    finally:
        for one in (doing, told):
            one.cancel()
        await asyncio.gather(doing, told, return_exceptions=True)


def _run(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except HostError as problem:
        refuse(problem)


def _heard(saying: str) -> asyncio.Event:
    """Set by the first signal, which is told that it was heard; the second one is the system's."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def hear(number: signal.Signals) -> None:
        typer.echo(saying, err=True)
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear, number)
    return stop
