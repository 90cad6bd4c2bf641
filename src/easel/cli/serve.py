"""The commands that serve: `easel up`, `easel demo`, `easel api`, `easel worker`."""

import asyncio
import contextlib
import gc
import sys
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from easel import __version__
from easel.cli.options import DataOption, HostOption, PortOption
from easel.cli.terminal import announce_slow_start, fail, load_settings, run, unless_stopped
from easel.core.web.hosts import is_loopback
from easel.errors import BadSettings
from easel.settings import MIN_TOKEN_LENGTH, Settings

GC_THRESHOLD = 20_000  # allocations between two collections of the youngest generation

DemoOption = Annotated[
    bool, typer.Option("--demo", help="Create the demo canvases, such as a deploy cockpit and live logs.")
]


def up(
    host: HostOption = None, port: PortOption = None, data: DataOption = None, demo: DemoOption = False
) -> None:
    """Start the API, a worker and the pages in one process.

    Example: `easel up --port 9000 --data ./my-easel`
    """
    config = load_settings(host=host, port=port, data=data)
    run(lambda stop: _serve(config, stop, with_api=True, with_worker=True, with_demo=demo))


def demo(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """Create the demo canvases in the running Easel; if none is running, start one with them.

    A deploy cockpit, live logs, a release checklist and a health check. Canvases that exist already are not
    changed.

    Example: `easel demo`
    """
    from easel.canvas_folder.api_client import RequestRefused, ServerUnreachable, client_for
    from easel.demo import CANVASES

    config = load_settings(host=host, port=port, data=data)
    try:
        server = client_for(config, None, None)
        local = server.call("nodes.list")["nodes"][0]
    except (BadSettings, ServerUnreachable):
        run(lambda stop: _serve_demo(config, stop))
        return
    except RequestRefused as problem:
        fail(BadSettings(problem=problem.message))
    for listed in CANVASES:
        canvas = listed.on_machine(local["tools"], local["bash"])
        try:
            try:
                server.call("canvas.create", **canvas.params)
            except RequestRefused as problem:
                if problem.name != "BAD_INPUT":
                    raise
                server.call("canvas.create", **canvas.without_refresh.params)
        except RequestRefused as problem:
            if problem.name != "ALREADY_EXISTS":
                fail(BadSettings(problem=f"{canvas.canvas_id}: {problem.message}"))
        typer.echo(f"{canvas.title}: {server.page_of('main', canvas.canvas_id)}")


def api(host: HostOption = None, port: PortOption = None, data: DataOption = None) -> None:
    """Start the API and the pages without a worker; `easel worker` processes execute the runs. Needs
    Postgres.

    Example: `EASEL_DATABASE_URL=postgresql://… easel api --port 8801`
    """
    config = load_settings(host=host, port=port, data=data)
    _check_postgres(config, "api")
    run(lambda stop: _serve(config, stop, with_api=True, with_worker=False))


def worker(data: DataOption = None) -> None:
    """Start a worker, which claims runs and executes them. Needs Postgres.

    SIGTERM drains it: it releases the runs that it cannot finish in time to other workers.

    Example: `EASEL_DATABASE_URL=postgresql://… easel worker`
    """
    config = load_settings(data=data)
    _check_postgres(config, "worker")
    run(lambda stop: _serve(config, stop, with_api=False, with_worker=True))


async def _serve(
    settings: Settings, stop: asyncio.Event, *, with_api: bool, with_worker: bool, with_demo: bool = False
) -> None:
    started = announce_slow_start()
    from easel.assembly.resources import open_resources
    from easel.assembly.sandbox import choose_sandbox
    from easel.assembly.server import listen, load_demo, serve
    from easel.assembly.services import build_services, open_shared_services
    from easel.assembly.storage import owner_token
    from easel.assembly.worker import build_worker

    if with_api:
        _check_token(settings)
    port = settings.port if with_api else settings.worker_port
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(started.set)
        listening = listen(settings.host, port) if with_api or port else None
        if listening is not None:
            stack.callback(listening.close)
        resources = await unless_stopped(stop, stack.enter_async_context(open_resources(settings)))
        sandbox = choose_sandbox(settings)
        shared = await stack.enter_async_context(open_shared_services(resources, sandbox))
        if listening is not None:
            services = build_services(shared)
            server = await stack.enter_async_context(serve(settings, services, listening, is_api=with_api))
            if with_demo:
                await load_demo(services)
            if with_api:
                token = owner_token(settings)
                print_banner(settings, server.address, token, sandbox.description, with_demo=with_demo)
        tune_gc()
        started.set()
        if with_worker:
            await build_worker(shared).work(stop)
        else:
            await stop.wait()


async def _serve_demo(settings: Settings, stop: asyncio.Event) -> None:
    from easel.cli.checks import lock_holder

    if holder := await lock_holder(settings):
        raise BadSettings(
            problem=f"The data folder {settings.data_folder} is in use by an Easel (process {holder}) that "
            f"is not on port {settings.port}; name its port with --port."
        )
    await _serve(settings, stop, with_api=True, with_worker=True, with_demo=True)


def _check_postgres(settings: Settings, command: str) -> None:
    """Exit with an error unless the database is Postgres: on SQLite only one process may run. RS-50"""
    if not settings.on_postgres:
        problem = f"`easel {command}` needs Postgres: set EASEL_DATABASE_URL. On SQLite use `easel up`."
        fail(BadSettings(problem=problem))


def _check_token(settings: Settings) -> None:
    """Raise `BadSettings` for a token that can be guessed, if other machines can reach this server."""
    if not settings.has_weak_token:
        return
    public_host = urlsplit(settings.public_url).hostname
    hosts = [host for host in (settings.host, public_host) if host and not host.endswith(".localhost")]
    if reachable := [host for host in hosts if not is_loopback(host)]:
        raise BadSettings(
            problem=f"EASEL_TOKEN must have at least {MIN_TOKEN_LENGTH} characters, because other machines "
            f"can reach {reachable[0]}."
        )


def tune_gc() -> None:
    """Collect garbage rarely: few objects are in reference cycles, and a collection delays every stream."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)


def print_banner(
    settings: Settings, address: tuple[str, int], token: str, bash: str, *, with_demo: bool
) -> None:
    from easel.canvas_folder.api_client import local_address

    host, port = address
    is_any_address = host in ("0.0.0.0", "::")  # noqa: S104
    local = local_address(host, port)
    base = settings.public_url.rstrip("/") or local
    where = f"all addresses of this machine, port {port}" if is_any_address else local
    typer.echo(f"Easel {__version__} listens on {where}")
    if not is_loopback(host) and not settings.public_url.startswith("https://"):
        typer.echo(
            "WARNING: listening on a public address without TLS; the token can be read in transit. "
            "Put a TLS proxy in front and set EASEL_PUBLIC_URL."
        )
    if settings.has_weak_token:
        typer.echo(f"WARNING: EASEL_TOKEN has fewer than {MIN_TOKEN_LENGTH} characters and can be guessed.")
    typer.echo(f"Data is in {settings.data_folder}" + (" and in Postgres" if settings.on_postgres else ""))
    typer.echo(f"Bash: {bash}")
    if settings.token and not sys.stdout.isatty():
        # The output may be stored for long, and a token of the administrator must not be in it.
        typer.echo(f"Open {base}/ and sign in with your EASEL_TOKEN.")
    else:
        typer.echo(f"Open {base}/?token={quote(token, safe='')}")
    if with_demo:
        typer.echo("The demo canvases are on that page: open one and click its first button.")
    typer.echo("Ctrl-C stops it.")
