"""Helpers of all commands: load settings, handle signals, and print one sentence when a command fails."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import typer

from easel import settings
from easel.errors import BadInput, BadSettings, HostError
from easel.settings import Settings

if TYPE_CHECKING:
    from easel.canvas_folder.api_client import ApiClient

SLOW_SECONDS = 5.0  # a longer start is announced

Result = TypeVar("Result")


def load_settings(**options: Any) -> Settings:
    """Load the settings and set up logging. Options of the command override the environment."""
    from easel import logs

    try:
        loaded = settings.load(**options)
        logs.configure(loaded.log)
        logs.warn_about_unknown(settings.unknown_variables())
    except BadSettings as problem:
        fail(problem)
    return loaded


def fail(problem: HostError) -> NoReturn:
    """Print the message to stderr and exit with 2."""
    typer.echo(f"easel: {problem.message}", err=True)
    raise typer.Exit(2)


class _Stopped(Exception):
    """A signal cancelled work that `unless_stopped` waited for."""


def run(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work`. The first signal sets its event for a clean shutdown, the second ends the process."""

    async def main() -> None:
        await work(_stop_on_signal("Stopping; press Ctrl-C again to stop at once."))

    try:
        _run(main())
    except _Stopped:
        return


def run_short(work: Callable[[], Awaitable[None]]) -> None:
    """Run a short command: the first signal cancels it, with exit code 1."""

    async def main() -> None:
        await unless_stopped(_stop_on_signal("Stopped before it was done."), work())

    try:
        _run(main())
    except _Stopped:
        raise typer.Exit(1) from None


async def unless_stopped(stop: asyncio.Event, work: Awaitable[Result]) -> Result:
    """Return the result of `work`, or cancel it and raise `_Stopped` once `stop` is set."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _Stopped
        return working.result()
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def announce_slow_start() -> threading.Event:
    """Say every few seconds, from a thread, that the start is not finished, until the event is set."""
    started = threading.Event()

    def announce() -> None:
        while not started.wait(SLOW_SECONDS):
            typer.echo("easel: still starting…", err=True)

    threading.Thread(target=announce, daemon=True).start()
    return started


def _run(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except HostError as problem:
        fail(problem)


def _stop_on_signal(message: str) -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second has its default effect."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        typer.echo(message, err=True)
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; None is a stream that was closed before the start."""
    return stream is not None and stream.isatty()


def connect(url: str | None, token: str | None, data: Path | None, account: str | None = None) -> "ApiClient":
    """Return a client of the running Easel for the options of a command."""
    from easel.canvas_folder.api_client import client_for

    return client_for(load_settings(data=data), url, token, account)


@contextlib.contextmanager
def failing_in_one_sentence() -> Generator[None]:
    """Turn every expected error into one sentence and exit code 2."""
    from easel.canvas_folder.api_client import RequestRefused, ServerUnreachable
    from easel.core.canvas.folder import escape_unprintable

    try:
        yield
    except HostError as problem:
        fail(problem)
    except (RequestRefused, ServerUnreachable) as problem:
        fail(BadInput(problem=escape_unprintable(str(problem))))
    except OSError as problem:
        text = f"{problem.filename or 'A file'}: {problem.strerror or problem}."
        fail(BadInput(problem=escape_unprintable(text)))
