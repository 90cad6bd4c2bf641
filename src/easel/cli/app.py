"""The command line: each verb starts, checks or explains something, and says what it did."""

import asyncio
import contextlib
import gc
import ipaddress
import os
import sys
import time
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from easel import __version__, settings
from easel.cli import nodes
from easel.cli.canvas import app as canvas_app
from easel.cli.terminal import do, refuse, run, settings_for, unless_stopped
from easel.errors import BadSettings
from easel.settings import Settings

GARBAGE_AFTER = 20_000  # more objects made than freed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # the pretty ones can show local variables, and with them secrets
    rich_markup_mode=None,  # plain text has room in every terminal
    help="""Easel: a self-hosted host for agent canvases.

    Start everything on this machine: `easel up`. Several processes on Postgres: set `EASEL_DATABASE_URL`, then `easel api` and `easel worker`.""",
)

audit_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The audit trail.")
app.add_typer(audit_app, name="audit")
app.add_typer(canvas_app, name="canvas")
app.add_typer(nodes.token_app, name="token")

TELL_SECONDS = 2.0  # how often something long says how far it is

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on (EASEL_HOST, 127.0.0.1); 0.0.0.0: all of this machine.",
    ),
]
PortOption = Annotated[
    str | None,
    typer.Option("--port", metavar="PORT", help="Port to listen on (EASEL_PORT, 8800); 0 picks a free one."),
]
DataOption = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Data folder (EASEL_DATA).")]
DemoOption = Annotated[
    bool,
    typer.Option(
        "--demo", help="With canvases for newcomers: a deploy cockpit, live logs, a release checklist."
    ),
]
KnownOption = Annotated[
    list[str] | None,
    typer.Option(
        "--known",
        metavar="SEQ:HASH",
        help="The end that an earlier call told, as often as needed: also finds a chain that was written anew.",
    ),
]


@app.command()
def up(
    host: HostOption = None, port: PortOption = None, data: DataOption = None, demo: DemoOption = False
) -> None:
    """API, worker and pages in one process.

    Example: `easel up --port 9000 --data ./my-easel`
    """
    wanted = settings_for(host=host, port=port, data=data)
    run(lambda stop: _serve(wanted, stop, with_api=True, with_worker=True, with_demo=demo))


@app.command()
def demo(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """Canvases for newcomers, in the Easel that runs here; where none runs, one is started with them.

    A deploy cockpit, live logs, and a release checklist with an approval. What is there already stays as it is.

    Example: `easel demo`
    """
    from easel.canvas_folder.api_client import Refused, ServerUnreachable, reached
    from easel.demo import CANVASES

    wanted = settings_for(host=host, port=port, data=data)
    try:
        server = reached(wanted, None, None)
        server.call("canvas.list")
    except (BadSettings, ServerUnreachable):
        run(lambda stop: _serve_demo(wanted, stop))
        return
    except Refused as problem:
        refuse(BadSettings(problem=problem.message))
    for canvas in CANVASES:
        try:
            try:
                server.call("canvas.create", **canvas.params)
            except Refused as problem:
                if problem.name != "BAD_INPUT":
                    raise
                server.call("canvas.create", **canvas.at_rest.params)
        except Refused as problem:
            if problem.name != "ALREADY_EXISTS":
                refuse(BadSettings(problem=f"{canvas.canvas_id}: {problem.message}"))
        typer.echo(f"{canvas.title}: {server.page_of('main', canvas.canvas_id)}")


@app.command()
def api(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """The API and pages alone; runs are executed by `easel worker` processes. Needs Postgres.

    Example: `EASEL_DATABASE_URL=postgresql://… easel api --port 8801`
    """
    wanted = _on_postgres(settings_for(host=host, port=port, data=data), "api")
    run(lambda stop: _serve(wanted, stop, with_api=True, with_worker=False))


@app.command()
def worker(data: DataOption = None) -> None:
    """A worker alone: claims runs and executes them. Needs Postgres. SIGTERM drains it and hands its runs back.

    Example: `EASEL_DATABASE_URL=postgresql://… easel worker`
    """
    wanted = _on_postgres(settings_for(data=data), "worker")
    run(lambda stop: _serve(wanted, stop, with_api=False, with_worker=True))


app.command()(nodes.node)


@app.command()
def migrate(data: DataOption = None) -> None:
    """Bring the database up to date. Every start does this too; alone it is for careful deployments.

    Example: `EASEL_DATABASE_URL=postgresql://… easel migrate`
    """
    from easel.assembly import storage as assembly

    async def go() -> None:
        opened = await assembly.open_database(wanted)
        try:
            applied = await opened.migrate()
            typer.echo("\n".join(f"applied {name}" for name in applied) or "Nothing to do.")
            typer.echo(f"The schema is at version {await opened.schema_version()}.")
        finally:
            await opened.close()

    wanted = settings_for(data=data)
    do(go)


@app.command()
def doctor(data: DataOption = None, port: PortOption = None) -> None:
    """Look at everything Easel needs here and say what is wrong and what to do. Changes nothing.

    Example: `easel doctor --data ./my-easel`
    """
    from easel.canvas_folder.api_client import ready_there
    from easel.cli import doctor as checks

    wanted = settings_for(data=data, port=port)
    found: list[checks.Check] = []

    async def go() -> None:
        async for check in checks.checks(wanted, await asyncio.to_thread(ready_there, wanted)):
            found.append(check)
            typer.echo(f"{check.verdict.value:<4} {check.what}: {check.says}")

    do(go)
    if any(check.verdict is checks.Verdict.BAD for check in found):
        raise typer.Exit(1)


@audit_app.command("verify")
def verify_audit(data: DataOption = None, known: KnownOption = None) -> None:
    """Check the whole audit chain, beside a running Easel too; a record that was changed, removed or moved ends it with 1.

    Example: `easel audit verify --data ./my-easel`
    """
    from easel.assembly import storage as assembly

    wanted = settings_for(data=data)
    seen: list[assembly.Reached] = []

    async def go(stop: asyncio.Event) -> None:
        tell_at = time.monotonic() + TELL_SECONDS
        async with contextlib.aclosing(assembly.verify_audit(wanted, known or [])) as following:
            async for reached in following:
                seen[:] = [reached]
                if stop.is_set():
                    return
                if time.monotonic() >= tell_at:
                    tell_at = time.monotonic() + TELL_SECONDS
                    typer.echo(f"{reached.seq} of {reached.last} records, whole so far", err=True)

    run(go)
    [end] = seen
    if end.problem:
        typer.echo(f"BROKEN at record {end.seq}: {end.problem}")
        raise typer.Exit(1)
    if not end.is_end:
        typer.echo(f"Stopped after record {end.seq} of {end.last}; whole so far.", err=True)
        raise typer.Exit(1)
    typer.echo(
        f"The audit chain is whole: {end.seq} records." + (f"\nIts end is {end.place}" if end.seq else "")
    )


@app.command("settings")
def show_settings() -> None:
    """Every setting with its value here, its default and what it does.

    Example: `EASEL_PORT=9000 easel settings`
    """
    wanted = settings_for()
    for row in settings.rows():
        value = getattr(wanted, row.name)
        shown = "(set)" if row.secret and value else repr(value)
        typer.echo(
            f"{row.variable}={shown}" + ("" if value == row.default else f"   (default {row.default!r})")
        )
        typer.echo(f"    {row.description}")
    for name in settings.unknown_variables():
        meant = settings.nearest(name)
        typer.echo(f"{name}: there is no such setting" + (f"; did you mean {meant}?" if meant else "."))


@app.callback(invoke_without_command=True)
def _every(
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    if version:
        typer.echo(f"easel {__version__}")
        raise typer.Exit


async def _serve(
    wanted: Settings, stop: asyncio.Event, *, with_api: bool, with_worker: bool, with_demo: bool = False
) -> None:
    from easel.assembly import server as server_module
    from easel.assembly.resources import open_resources
    from easel.assembly.sandbox import choose_sandbox
    from easel.assembly.services import build_services, open_shared_services
    from easel.assembly.worker import build_worker

    port = wanted.port if with_api else wanted.worker_port
    is_open = not _is_loopback(wanted.host)
    if with_api and is_open and wanted.has_weak_token:
        problem = f"EASEL_TOKEN has fewer than {settings.MIN_TOKEN_LENGTH} characters, and others can reach {wanted.host}; take a longer one."
        raise BadSettings(problem=problem)
    listening = server_module.listen(wanted.host, port) if with_api or port else None
    async with contextlib.AsyncExitStack() as stack:
        resources = await unless_stopped(stop, stack.enter_async_context(open_resources(wanted)))
        in_force = choose_sandbox(wanted)
        shared = await stack.enter_async_context(open_shared_services(resources, in_force))
        if listening is not None:
            services = build_services(shared)
            server = await stack.enter_async_context(
                server_module.serve(wanted, services, listening, is_api=with_api)
            )
            if with_demo:
                await server_module.load_demo(services)
            if with_api:
                _say_where(
                    wanted, server.address, services.sign_in.owner_token, in_force.says, with_demo=with_demo
                )
        _look_for_garbage_rarely()
        if with_worker:
            await build_worker(shared).work(stop)
        else:
            await stop.wait()


async def _serve_demo(wanted: Settings, stop: asyncio.Event) -> None:
    from easel.cli import doctor as checks

    if holder := await checks.holder(wanted):
        where = f"as process {holder}, and not on port {wanted.port}"
        raise BadSettings(
            problem=f"An Easel runs on the data folder {wanted.data_folder} already, {where}; name its port with --port."
        )
    await _serve(wanted, stop, with_api=True, with_worker=True, with_demo=True)


def _look_for_garbage_rarely() -> None:
    """Hardly anything here is held by a circle of references, and while one is looked for all viewers wait."""
    gc.collect()
    gc.freeze()  # what is here now stays
    gc.set_threshold(GARBAGE_AFTER, 20, 20)


def _say_where(wanted: Settings, address: tuple[str, int], token: str, bash: str, *, with_demo: bool) -> None:
    host, port = address
    is_everywhere = host in ("0.0.0.0", "::")  # noqa: S104
    name = "127.0.0.1" if is_everywhere else f"[{host}]" if ":" in host else host
    base = wanted.public_url.rstrip("/") or f"http://{name}:{port}"
    typer.echo(
        f"Easel {__version__} listens on "
        + (f"all addresses of this machine, port {port}" if is_everywhere else f"http://{name}:{port}")
    )
    if not _is_loopback(host) and not wanted.public_url.startswith("https://"):
        typer.echo(
            "WARNING: others can reach it, and without TLS whoever is on the way reads along, the token too: put TLS in front and set EASEL_PUBLIC_URL."
        )
    if wanted.has_weak_token:
        typer.echo(
            f"WARNING: EASEL_TOKEN has fewer than {settings.MIN_TOKEN_LENGTH} characters, and whoever tries them all owns this Easel."
        )
    typer.echo(f"Data is in {wanted.data_folder}" + (" and in Postgres" if wanted.on_postgres else ""))
    typer.echo(f"Bash: {bash}")
    typer.echo(f"Open {base}/?token={quote(token, safe='')}")
    if with_demo:
        typer.echo("There are canvases for newcomers on that page: open one and press its first button.")
    typer.echo("Ctrl-C stops it.")
    sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _on_postgres(wanted: Settings, verb: str) -> Settings:
    """RS-50: several processes share Postgres; SQLite serves one."""
    if not wanted.on_postgres:
        problem = f"`easel {verb}` is one of several processes, and they need Postgres: set EASEL_DATABASE_URL. On SQLite use `easel up`."
        refuse(BadSettings(problem=problem))
    return wanted


def main() -> None:
    _hold_standard_streams()
    app()


def _hold_standard_streams() -> None:
    """One that is closed would be the number of the next file that is opened, and what is printed would go there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process lives
