"""The commands `easel canvas export | import | watch`, and what they say."""

import contextlib
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from easel.cli.terminal import refuse, say, settings_for
from easel.errors import BadInput, HostError

if TYPE_CHECKING:
    from easel.canvas_folder.api_client import Server
    from easel.canvas_folder.files import CanvasDir
    from easel.core.canvas.folder import FolderCanvas
    from easel.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Canvases as folders: carry them out of a running Easel and in again, or edit one and watch it change.

    The folder of a canvas is `agents/AGENT/canvases/CANVAS/`, with `spec.json`, `state/latest.json` and `assets/…` in it.""",
)

MAX_EVENTS = 1_000

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A canvas's own folder, or the one above agents/.")
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="Whose canvas, where the folder does not say it (main)."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the running Easel is (EASEL_HOST and EASEL_PORT)."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Who asks (EASEL_TOKEN, or else the owner of the data folder); others may see it in `ps`.",
    ),
]
AcceptOption = Annotated[
    bool,
    typer.Option("--accept", help="You stand for what is in it: its buttons ask no more than they declare."),
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder that has the owner's token (EASEL_DATA)."),
]
EventsOption = Annotated[
    int,
    typer.Option(
        "--events", metavar="COUNT", min=0, help="At most so many records of its actions, the newest."
    ),
]


@app.command("export")
def export_canvas(
    canvas: Annotated[str, typer.Argument(metavar="CANVAS", help="The canvas's id.")],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to; agents/AGENT/canvases/CANVAS is made in it.")
    ],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="Whose canvas it has to be; any, if not said."),
    ] = None,
    events: EventsOption = MAX_EVENTS,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Write a canvas to a folder: descriptor, spec, state, assets and the records of its actions.

    What an earlier export wrote there is written over.

    Example: `easel canvas export cockpit ./backup`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.sync import checked_agent, held, records
    from easel.core.canvas.folder import to_files

    with _in_plain_words():
        server = _server(settings_for(data=data), url, token)
        there = held(server, canvas)
        if there is None:
            raise BadInput(problem=f"There is no canvas {canvas} at {server.url}.")
        if agent is not None:
            checked_agent(there, agent)
        found = records(server, canvas, events)
        content = to_files(there.canvas, there.descriptor, found)
        other, stale = files.replaced(folder, there.canvas.place, content)
        _ask_before(
            folder / there.canvas.place, [path for path in (*other, *stale) if path != "state/latest.json"]
        )
        files.write(folder, there.canvas.place, content)
        files.remove(folder, there.canvas.place, stale)
    typer.echo(
        f"Wrote {canvas}, revision {there.revision}, to {folder / there.canvas.place}: spec, state, "
        f"{_count(len(there.canvas.assets), 'asset')}, {_count(len(found), 'record')} of actions."
    )
    if len(found) == events > 0:
        typer.echo(f"There may be older records; --events {events * 10} would take more of them.")
    for path in stale:
        typer.echo(f"Removed {path}, which the canvas does not have any more.")


@app.command("import")
def import_canvas(
    folder: FolderArgument,
    agent: AgentOption = None,
    accept: AcceptOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Make the canvases of a running Easel what a folder says: spec, state and assets, all of a canvas or nothing of it.

    Until somebody accepts it there, an imported canvas runs nothing without asking; `--accept` does it at once. Records of actions
    stay where they happened, and are not imported.

    Example: `easel canvas import ./backup --accept`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.sync import accept as stand_for
    from easel.canvas_folder.sync import carry, checked_agent, held
    from easel.canvas_folder.watcher import in_words

    with _in_plain_words():
        wanted = settings_for(data=data)
        canvases = _read_all(
            files.find(folder, agent), wanted.max_asset_bytes
        )  # all of them, before the first is sent
        server = _server(wanted, url, token)
        for canvas in canvases:
            there = held(server, canvas.canvas_id)
            if there is not None:
                checked_agent(there, canvas.agent_id)
            carried = carry(
                server, there and there.canvas, canvas, most_bytes=wanted.max_body_bytes, is_accepted=accept
            )
            typer.echo(
                f"{canvas.canvas_id}: "
                + ("is so already; nothing to do." if carried is None else f"{in_words(carried)}.")
            )
            for warning in carried.warnings if carried else ():
                typer.echo(f"{canvas.canvas_id}: the server warns: {warning}")
            if accept:
                stand_for(server, canvas.canvas_id)
            wants = " and accept it there, if you trust what it does" if carried and not accept else ""
            typer.echo(f"Open {server.page_of(canvas.agent_id, canvas.canvas_id)}{wants}")


@app.command("watch")
def watch_canvas(
    folder: FolderArgument,
    agent: AgentOption = None,
    accept: AcceptOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    data: DataOption = None,
) -> None:
    """Serve a folder live while you edit it: each save is in the open canvas within a second.

    The state that people leave in the canvas stays theirs, unless you change `state/latest.json`. After a save the canvas runs nothing
    without asking, until somebody accepts it there: `--accept` does it at once, for all that is saved in the folder, whoever saves it.

    Example: `easel canvas watch ./agents/main/canvases/cockpit --accept`
    """
    from easel.canvas_folder import files
    from easel.canvas_folder.watcher import LOOK_SECONDS, FolderWatcher, WatchLimits

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _in_plain_words():
            wanted = settings_for(data=data)
            files.find(folder, agent)  # what is wrong with it is told before what is wrong with the server
            server = _server(wanted, url, token)
            limits = WatchLimits(wanted.max_asset_bytes, wanted.max_body_bytes)
            watches = FolderWatcher(folder, agent, server, limits, _say_now, is_accepted=accept)
            for place in watches.start():
                say(
                    f"Watching {place.folder} as {place.canvas_id}; open {server.page_of(place.agent_id, place.canvas_id)}"
                )
            if not accept:
                say(
                    "What is saved asks before it runs anything, until you accept it there; with --accept you stand for all that is saved here."
                )
            say("Ctrl-C stops it.")
            while True:
                time.sleep(LOOK_SECONDS)
                watches.once()
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
    finally:
        signal.signal(signal.SIGTERM, before)


def _read_all(places: "list[CanvasDir]", most_bytes: int) -> "list[FolderCanvas]":
    from easel.canvas_folder import files
    from easel.core.canvas.folder import escape_unprintable, read_files

    canvases: list[FolderCanvas] = []
    wrong: list[str] = []
    for place in places:
        found, problems = files.read_settled(place.folder, most_bytes=most_bytes)
        reading = read_files(found, place.agent_id, place.canvas_id)
        wrong += [
            f"{escape_unprintable(str(place.folder))}/{problem}" for problem in (*problems, *reading.problems)
        ]
        canvases.append(reading.canvas)
    if wrong:
        *others, last = wrong
        for one in others:
            typer.echo(f"easel: {one}", err=True)
        raise BadInput(problem=f"{last} Nothing was imported.")
    return canvases


def _server(wanted: "Settings", url: str | None, token: str | None) -> "Server":
    from easel.canvas_folder.api_client import reached

    return reached(wanted, url, token)


def _ask_before(folder: Path, lost: list[str]) -> None:
    """A person at a terminal is asked before what they may have written is written over; a script has said what it wants."""
    if not lost or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    typer.echo(
        f"In {folder} these are not what the canvas has: {', '.join(lost[:8])}{' …' if len(lost) > 8 else ''}"
    )
    typer.confirm("Write over them?", abort=True)


def _say_now(text: str) -> None:
    say(f"{time.strftime('%H:%M:%S')} {text}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _in_plain_words() -> Generator[None]:
    """Whatever goes wrong is one sentence and exit 2."""
    from easel.canvas_folder.api_client import Refused, ServerUnreachable
    from easel.core.canvas.folder import escape_unprintable

    try:
        yield
    except HostError as problem:
        refuse(problem)
    except (Refused, ServerUnreachable) as problem:
        refuse(BadInput(problem=escape_unprintable(str(problem))))
    except OSError as problem:
        refuse(
            BadInput(
                problem=escape_unprintable(f"{problem.filename or 'A file'}: {problem.strerror or problem}.")
            )
        )
