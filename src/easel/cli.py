"""The command line: each verb starts, checks or explains something, and says what it did."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import typer

from easel import __version__, settings
from easel.errors import BadSettings, HostError
from easel.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # the pretty ones can show local variables, and with them secrets
    rich_markup_mode="markdown",
    help="""Easel: a self-hosted host for agent canvases.

    Start everything on this machine: `easel up`. Several processes on Postgres: set `EASEL_DATABASE_URL`, then `easel api` and `easel worker`.""",
)

audit_app = typer.Typer(no_args_is_help=True, help="The audit trail.")
app.add_typer(audit_app, name="audit")

TELL_SECONDS = 2.0  # how often something long says how far it is

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on (EASEL_HOST, 127.0.0.1).")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port to listen on (EASEL_PORT, 8800); 0 picks a free one.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Data folder (EASEL_DATA).")]
KnownOption = Annotated[
    list[str] | None,
    typer.Option("--known", help="SEQ:HASH, the end that an earlier call told: also finds a chain that was written anew."),
]


@app.command()
def up(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """API, worker and pages in one process.

    Example: `easel up --port 9000 --data ./my-easel`
    """
    wanted = _settings(host=host, port=port, data=data)
    _run(lambda stop: _serve(wanted, stop, with_api=True, with_worker=True))


@app.command()
def api(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """The API and pages alone; runs are executed by `easel worker` processes. Needs Postgres.

    Example: `EASEL_DATABASE_URL=postgresql://… easel api --port 8801`
    """
    wanted = _on_postgres(_settings(host=host, port=port, data=data), "api")
    _run(lambda stop: _serve(wanted, stop, with_api=True, with_worker=False))


@app.command()
def worker(data: DataOption = None) -> None:
    """A worker alone: claims runs and executes them. Needs Postgres. SIGTERM drains it and hands its runs back.

    Example: `EASEL_DATABASE_URL=postgresql://… easel worker`
    """
    wanted = _on_postgres(_settings(data=data), "worker")
    _run(lambda stop: _serve(wanted, stop, with_api=False, with_worker=True))


@app.command()
def migrate(data: DataOption = None) -> None:
    """Bring the database up to date. Every start does this too; alone it is for careful deployments.

    Example: `EASEL_DATABASE_URL=postgresql://… easel migrate`
    """
    from easel import assembly

    async def go(_: asyncio.Event) -> None:
        opened = await assembly.open_database(wanted)
        try:
            applied = await opened.migrate()
            typer.echo("\n".join(f"applied {name}" for name in applied) or "Nothing to do.")
            typer.echo(f"The schema is at version {await opened.schema_version()}.")
        finally:
            await opened.close()

    wanted = _settings(data=data)
    _run(go)


@app.command()
def doctor(data: DataOption = None, port: PortOption = None) -> None:
    """Look at everything Easel needs here and say what is wrong and what to do.

    Example: `easel doctor --data ./my-easel`
    """
    from easel import checkup

    wanted = _settings(data=data, port=port)
    found: list[bool] = []

    async def go(_: asyncio.Event) -> None:
        async for check in checkup.checks(wanted):
            found.append(check.is_good)
            typer.echo(f"{'ok  ' if check.is_good else 'BAD '} {check.what}: {check.says}")

    _run(go)
    if not all(found):
        raise typer.Exit(1)


@audit_app.command("verify")
def verify_audit(data: DataOption = None, known: KnownOption = None) -> None:
    """Check the whole audit chain, beside a running Easel too; a record that was changed, removed or moved ends it with 1.

    Example: `easel audit verify --data ./my-easel`
    """
    from easel import assembly

    wanted = _settings(data=data)
    seen: list[assembly.Reached] = []

    async def go(stop: asyncio.Event) -> None:
        tell_at = time.monotonic() + TELL_SECONDS
        async with contextlib.aclosing(assembly.verified(wanted, known or [])) as following:
            async for reached in following:
                seen[:] = [reached]
                if stop.is_set():
                    return
                if time.monotonic() >= tell_at:
                    tell_at = time.monotonic() + TELL_SECONDS
                    typer.echo(f"{reached.seq} of {reached.last} records, whole so far", err=True)

    _run(go)
    [end] = seen
    if end.problem:
        typer.echo(f"BROKEN at record {end.seq}: {end.problem}")
        raise typer.Exit(1)
    if not end.is_end:
        typer.echo(f"Stopped after record {end.seq} of {end.last}; whole so far.", err=True)
        raise typer.Exit(1)
    typer.echo(f"The audit chain is whole: {end.seq} records." + (f"\nIts end is {end.place}" if end.seq else ""))


@app.command("settings")
def show_settings() -> None:
    """Every setting with its value here, its default and what it does.

    Example: `EASEL_PORT=9000 easel settings`
    """
    wanted = _settings()
    for row in settings.rows():
        value = getattr(wanted, row.name)
        shown = "(set)" if row.secret and value else repr(value)
        typer.echo(f"{row.variable}={shown}" + ("" if value == row.default else f"   (default {row.default!r})"))
        typer.echo(f"    {row.says}")
    for name in settings.unknown_variables():
        typer.echo(f"{name}: there is no such setting.")


@app.callback(invoke_without_command=True)
def _every(version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False) -> None:
    if version:
        typer.echo(f"easel {__version__}")
        raise typer.Exit


async def _serve(wanted: Settings, stop: asyncio.Event, *, with_api: bool, with_worker: bool) -> None:
    from easel import assembly

    port = wanted.port if with_api else wanted.worker_port
    listening = assembly.listening(wanted.host, port) if with_api or port else None
    async with contextlib.AsyncExitStack() as stack:
        ground = await stack.enter_async_context(assembly.ground(wanted))
        tools = assembly.toolbox(ground)
        if listening is not None:
            stories = assembly.host(ground, tools)
            server = await stack.enter_async_context(assembly.serving(wanted, stories, listening, is_api=with_api))
            if with_api:
                _say_where(wanted, server.address, stories.sign_in.owner_token)
        if with_worker:
            await assembly.worker(ground, tools).work(stop)
        else:
            await stop.wait()


def _say_where(wanted: Settings, address: tuple[str, int], token: str) -> None:
    host, port = address
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104
    base = wanted.public_url.rstrip("/") or f"http://{name}:{port}"
    typer.echo(f"Easel {__version__} listens on http://{name}:{port}")
    typer.echo(f"Data is in {wanted.data_folder}" + (" and in Postgres" if wanted.on_postgres else ""))
    typer.echo(f"Open {base}/?token={quote(token, safe='')}")
    typer.echo("Ctrl-C stops it.")
    sys.stdout.flush()


def _settings(**given: Any) -> Settings:
    from easel import logs

    try:
        wanted = settings.load(**given)
        logs.set_up(wanted.log)
        logs.warn_of(settings.unknown_variables())
    except BadSettings as problem:
        _refuse(problem)
    return wanted


def _on_postgres(wanted: Settings, verb: str) -> Settings:
    """RS-50: several processes share Postgres; SQLite serves one."""
    if not wanted.on_postgres:
        problem = f"`easel {verb}` is one of several processes, and they need Postgres: set EASEL_DATABASE_URL. On SQLite use `easel up`."
        _refuse(BadSettings(problem=problem))
    return wanted


def _refuse(problem: HostError) -> NoReturn:
    typer.echo(f"easel: {problem.message}", err=True)
    raise typer.Exit(2)


def _run(go: Callable[[asyncio.Event], Awaitable[None]]) -> None:
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
        _refuse(problem)


def _once(loop: asyncio.AbstractEventLoop, number: signal.Signals, stop: asyncio.Event) -> Callable[[], None]:
    def hear() -> None:
        typer.echo("Stopping; once more to stop at once.", err=True)
        loop.remove_signal_handler(number)
        stop.set()

    return hear


def main() -> None:
    app()
