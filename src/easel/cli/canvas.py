"""The commands `easel canvas list`, `export`, `import`, `watch`, `versions` and `restore`."""

import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easel.cli.options import AccountOption, DataOption, TokenOption, UrlOption
from easel.cli.terminal import connect, failing_in_one_sentence, is_terminal, load_settings
from easel.errors import BadInput

if TYPE_CHECKING:
    from easel.canvas_folder.files import CanvasDir
    from easel.core.canvas.folder import FolderCanvas

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Canvases as folders: export them from a running Easel, import them, or edit one live. Earlier
    versions of a canvas: list them, or restore one.

    The folder of a canvas is `agents/AGENT/canvases/CANVAS/`. It contains `spec.json`, `state/latest.json`
    and `assets/…`.""",
)

MAX_EVENTS = 1_000

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a canvas, or the one that contains agents/.")
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="AGENT", help="Agent of the canvas, if the path does not name it (main)."
    ),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept", help="Accept the spec and page, so that actions run without extra confirmation."
    ),
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace canvases that exist and differ, without a question.")
]
EventsOption = Annotated[
    int,
    typer.Option("--events", metavar="COUNT", min=0, help="Maximum number of action records, newest first."),
]


@app.command("list")
def list_canvases(
    url: UrlOption = None, token: TokenOption = None, account: AccountOption = None, data: DataOption = None
) -> None:
    """List the canvases: the id, the title and the page of each.

    Example: `easel canvas list`
    """
    from easel.core.canvas.folder import escape_unprintable

    with failing_in_one_sentence():
        server = connect(url, token, data, account)
        after: str | None = None
        while True:
            page = server.call("canvas.list", after=after)
            for canvas in page["canvases"]:
                address = server.page_of(canvas["agentId"], canvas["canvasId"])
                typer.echo(escape_unprintable(f"{canvas['canvasId']}  {canvas['title']}  {address}"))
            after = page.get("next")
            if after is None:
                break


@app.command("export")
def export_canvas(
    canvas: Annotated[str, typer.Argument(metavar="CANVAS", help="Id of the canvas.")],
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Target folder; agents/AGENT/canvases/CANVAS is created in it."),
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="AGENT", help="Agent that the canvas must belong to; any by default."
        ),
    ] = None,
    events: EventsOption = MAX_EVENTS,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Write a canvas to a folder: descriptor, spec, state, assets and the records of its actions.

    Overwrites an earlier export.

    Example: `easel canvas export cockpit ./backup`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.sync import fetch, fetch_records
    from easel.core.canvas.folder import STATE, to_files

    with failing_in_one_sentence():
        server = connect(url, token, data, account)
        there = fetch(server, canvas, agent)
        if there.revision == 0:
            raise BadInput(problem=f"There is no canvas {canvas} at {server.url}.")
        found = fetch_records(server, canvas, events)
        content = to_files(there.canvas, there.descriptor, found)
        other, stale = files.find_overwritten(folder, there.canvas.directory, content)
        target = folder / there.canvas.directory
        if edited := [path for path in (*other, *stale) if path != STATE]:
            _confirm("Overwrite them?", f"Files in {target} that differ from the canvas", edited)
        files.write(folder, there.canvas.directory, content)
        files.remove(folder, there.canvas.directory, stale)
    typer.echo(
        f"Wrote {canvas}, revision {there.revision}, to {target}: spec, state, "
        f"{_count(len(there.canvas.assets), 'asset')}, {_count(len(found), 'record')} of actions."
    )
    if len(found) == events > 0:
        typer.echo(f"There may be older records; --events {events * 10} exports more of them.")
    for path in stale:
        typer.echo(f"Removed {path}, which is no longer part of the canvas.")


@app.command("import")
def import_canvas(
    folder: FolderArgument,
    agent: AgentOption = None,
    accept: AcceptOption = False,
    replace: ReplaceOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Import canvases from a folder into a running Easel: spec, state and assets.

    A canvas that exists and differs is replaced after a question, or with `--replace`. An imported canvas
    asks for confirmation before it runs anything, until it is accepted on its page; `--accept` accepts it at
    once. Records of actions are not imported. An interrupted import is completed by repeating it.

    Example: `easel canvas import ./backup --replace --accept`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.api_client import client_for
    from easel.canvas_folder.sync import compare, fetch, name_files, push

    with failing_in_one_sentence():
        settings = load_settings(data=data)
        # All canvases are read and compared before the first one is sent.
        canvases = _read_all(files.find_canvases(folder, agent), settings.max_asset_bytes)
        server = client_for(settings, url, token, account)
        on_server = [fetch(server, canvas.canvas_id, canvas.agent_id) for canvas in canvases]
        for canvas, there in zip(canvases, on_server, strict=True):
            changed = compare(there.canvas, canvas).files
            exists = f"Canvas {canvas.canvas_id} exists already and differs"
            if there.revision and changed and not replace and not _confirm("Replace it?", exists, changed):
                raise BadInput(
                    problem=f"{exists} ({name_files(changed)}); --replace replaces it. Nothing was imported."
                )
        for canvas, there in zip(canvases, on_server, strict=True):
            synced = push(server, there, canvas, is_accepted=accept)
            done = "is up to date; nothing to do" if synced is None else synced.describe()
            typer.echo(f"{canvas.canvas_id}: {done}.")
            for warning in synced.warnings if synced else ():
                typer.echo(f"{canvas.canvas_id}: warning: {warning}")
            if accept:
                revision = synced.revision if synced else there.revision
                server.call("canvas.accept", canvasId=canvas.canvas_id, revision=revision)
            advice = " and accept it there, if you trust it" if synced and not accept else ""
            typer.echo(f"Open {server.page_of(canvas.agent_id, canvas.canvas_id)}{advice}")


@app.command("watch")
def watch_canvas(
    folder: FolderArgument,
    agent: AgentOption = None,
    accept: AcceptOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Synchronise a folder with an open canvas while you edit it: each save is shown within a second.

    The state of the canvas is kept unless you change `state/latest.json`. After a save the canvas asks for
    confirmation before it runs anything, until it is accepted on its page; `--accept` accepts every save in
    the folder at once.

    Example: `easel canvas watch ./agents/main/canvases/cockpit --accept`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.api_client import client_for
    from easel.canvas_folder.watcher import CanvasWatcher, FolderWatcher

    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with failing_in_one_sentence():
            settings = load_settings(data=data)
            # Problems of the folder are reported before those of the server.
            files.find_canvases(folder, agent)
            server = client_for(settings, url, token, account)
            watch = partial(
                CanvasWatcher, client=server, max_bytes=settings.max_asset_bytes, is_accepted=accept
            )
            watcher = FolderWatcher(folder, agent, _say_with_time, watch)
            for place in watcher.start():
                page = server.page_of(place.agent_id, place.canvas_id)
                typer.echo(f"Watching {place.folder} as {place.canvas_id}; open {page}")
            if not accept:
                typer.echo(
                    "Saved changes ask for confirmation before they run anything, until you accept them on "
                    "the page; --accept accepts every save."
                )
            typer.echo("Ctrl-C stops it.")
            while True:
                time.sleep(watcher.poll())
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@app.command("versions")
def list_versions(
    canvas: Annotated[str, typer.Argument(metavar="CANVAS", help="Id of the canvas.")],
    count: Annotated[
        int, typer.Option("--count", metavar="COUNT", min=1, max=200, help="Versions to list, newest first.")
    ] = 50,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """List the versions of a canvas, newest first, with time, author, folder and changes.

    Example: `easel canvas versions cockpit`
    """
    with failing_in_one_sentence():
        server = connect(url, token, data, account)
        page = server.call("canvas.versions", canvasId=canvas, limit=count)
    typer.echo(f"{_describe_version(page['current'])} (present)")
    for version in page["versions"]:
        typer.echo(_describe_version(version))


@app.command("restore")
def restore_version(
    canvas: Annotated[str, typer.Argument(metavar="CANVAS", help="Id of the canvas.")],
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number of the version.")],
    expected_revision: Annotated[
        int | None,
        typer.Option(
            "--expected-revision",
            metavar="REVISION",
            min=0,
            help="Revision that the canvas must have; at another one nothing is restored.",
        ),
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Make the title, spec, assets and session of an earlier version the present ones. The state is kept.

    The present ones become a version, so that a restore can be undone.

    Example: `easel canvas restore cockpit 3`
    """
    with failing_in_one_sentence():
        server = connect(url, token, data, account)
        params = {} if expected_revision is None else {"expectedRevision": expected_revision}
        restored = server.call("canvas.restore", canvasId=canvas, version=version, **params)
    typer.echo(f"Restored version {version} of {canvas}, which is now revision {restored['revision']}.")
    for warning in restored.get("warnings", ()):
        typer.echo(f"{canvas}: warning: {warning}")


def _describe_version(version: "dict[str, Any]") -> str:
    """Return a line about a version. The names in it come from authors: they are escaped."""
    from easel.core.canvas.folder import escape_unprintable

    at = version.get("at")
    when = (
        "at an unknown time" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))
    )
    author = version.get("writtenBy")
    who = f"{author['kind']} {author['name']}" if author else "unknown author"
    parts = [f"{part['path']} {part['change']}" for part in version.get("changed", ())]
    if more := version.get("moreChanges"):
        parts.append(f"and {more} more")
    what = ", ".join(parts) or "first known version"
    restored = f"restored version {version['restored']}: " if "restored" in version else ""
    where = version["ownerSessionKey"]
    return escape_unprintable(f"{version['version']:>4}  {when}  {who}  {where}  {restored}{what}")


def _read_all(places: "list[CanvasDir]", max_bytes: int) -> "list[FolderCanvas]":
    from easel.canvas_folder.sync import read_canvas
    from easel.core.canvas.folder import escape_unprintable

    found = [read_canvas(place, max_bytes=max_bytes) for place in places]
    complaints = [
        f"{escape_unprintable(str(place.folder))}/{problem}"
        for place, result in zip(places, found, strict=True)
        for problem in result.problems
    ]
    for complaint in complaints[:-1]:
        typer.echo(f"easel: {complaint}", err=True)
    if complaints:
        raise BadInput(problem=f"{complaints[-1]} Nothing was imported.")
    return [result.canvas for result in found]


def _confirm(question: str, about: str, paths: list[str]) -> bool:
    """Ask about these files. Returns False without a terminal to ask at."""
    from easel.canvas_folder.sync import name_files

    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return False
    typer.echo(f"{about}: {name_files(paths)}")
    return typer.confirm(question, abort=True)


def _say_with_time(text: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {text}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
