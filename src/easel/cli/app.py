"""The command line: the `easel` command and its groups.

Each group has a module of its own. A command imports what it needs when it runs, so that `easel --help` is
fast.
"""

import os
from typing import Annotated

import typer

from easel import __version__
from easel.cli import audit, canvas, doctor, nodes, people, secrets, serve, settings, tokens
from easel.cli.options import DataOption
from easel.cli.terminal import load_settings, run_short

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    # Pretty tracebacks print local variables, and with them secrets.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Easel: a self-hosted host for agent canvases.

    Start everything on this machine: `easel up`. For several processes on Postgres, set `EASEL_DATABASE_URL`,
    then start `easel api` and `easel worker`.""",
)
app.command()(serve.up)
app.command()(serve.demo)
app.command()(serve.api)
app.command()(serve.worker)
app.command()(nodes.node)
app.command()(doctor.doctor)
app.add_typer(audit.app, name="audit")
app.add_typer(canvas.app, name="canvas")
app.add_typer(secrets.app, name="secret")
app.add_typer(settings.app, name="settings")
app.add_typer(people.teams, name="team")
app.add_typer(tokens.app, name="token")
app.add_typer(people.users, name="user")


@app.command()
def migrate(data: DataOption = None) -> None:
    """Update the database to the newest schema. Every start does this too; use it alone before a deployment.

    Example: `EASEL_DATABASE_URL=postgresql://… easel migrate`
    """
    from easel.assembly.storage import open_database

    config = load_settings(data=data)

    async def apply_migrations() -> None:
        database = await open_database(config)
        try:
            applied = await database.migrate()
            typer.echo("\n".join(f"applied {name}" for name in applied) or "Nothing to do.")
            typer.echo(f"The schema is at version {await database.schema_version()}.")
        finally:
            await database.close()

    run_short(apply_migrations)


@app.callback(invoke_without_command=True)
def main_options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"easel {__version__}")
        raise typer.Exit


def main() -> None:
    _open_closed_streams()
    app()


def _open_closed_streams() -> None:
    """Open /dev/null for closed standard streams: libuv aborts if it gets descriptor 0, 1 or 2."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
