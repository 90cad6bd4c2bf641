"""`easel canvas watch`: a folder is synchronised while its author edits it, as editors really save. RS-11"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from easel.canvas_folder import files, watcher
from easel.canvas_folder.api_client import ApiClient
from easel.canvas_folder.watcher import CanvasWatcher, FolderWatcher
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.canvas_folders import (
    PAGE,
    SPEC,
    canvas_content,
    canvas_exists,
    output_of,
    refusal,
    rpc,
    run_at,
    run_on,
    write_files,
)
from tests.support.gateway import GatewayClient, Refused
from tests.support.processes import EASEL, EaselProcess, Launcher
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND = 1.0
SETTINGS = {"DRAIN_SECONDS": "0.2", "MAX_ASSET_BYTES": "100000"}
TIMEOUT_SECONDS = 60.0
MAX_ATTEMPTS = 10  # a busy machine may be late, but not every time
MAX_BYTES = 1_000_000  # of an asset; more than the server accepts


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("easel"), settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def server(launcher: Launcher) -> EaselProcess:
    (started,) = launcher.ready(launcher.up())
    return started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new canvas folder, with the canvas id as its name."""
    return write_files(
        tmp_path / new_session(),
        {
            "spec.json": SPEC,
            "state/latest.json": {"service": "api"},
            "assets/index.html": PAGE,
            "assets/index.js": b"1",
        },
    )


class Author:
    """A watched folder that the test polls itself."""

    def __init__(self, server: EaselProcess, folder: Path, *, is_accepted: bool = True) -> None:
        self.messages: list[str] = []
        self.folder = folder
        [place] = files.find_canvases(folder)
        client = ApiClient(server.base_url, server.token)
        self.watcher = CanvasWatcher(
            place, self.messages.append, client=client, max_bytes=MAX_BYTES, is_accepted=is_accepted
        )

    def settle(self) -> list[str]:
        """Poll until nothing is left to do, and return the messages of that time."""
        before = len(self.messages)
        for _ in range(4):
            self.watcher.poll()
        return self.messages[before:]


def watch_all(server: EaselProcess, folder: Path, messages: list[str]) -> FolderWatcher:
    client = ApiClient(server.base_url, server.token)
    watch = functools.partial(CanvasWatcher, client=client, max_bytes=MAX_BYTES, is_accepted=True)
    return FolderWatcher(folder, None, messages.append, watch)


@pytest.fixture
def author(server: EaselProcess, folder: Path) -> Author:
    started = Author(server, folder)
    started.settle()
    started.messages.clear()
    return started


def revision(server: EaselProcess, folder: Path) -> int:
    return rpc(server, "canvas.get", canvasId=folder.name)["revision"]


# --- the command --------------------------------------------------------------------------------------------


def replace_file(path: Path, text: bytes) -> None:
    """Save as vim does, by renaming a draft."""
    draft = path.with_name(f".{path.name}.swp")
    draft.write_bytes(text)
    draft.replace(path)


def move_and_write(path: Path, text: bytes) -> None:
    """Save as editors with backups do: for a moment the file does not exist."""
    path.replace(path.with_name(path.name + "~"))
    path.write_bytes(text)


def truncate_and_write(path: Path, text: bytes) -> None:
    """Truncate the file and fill it in small writes."""
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(text), 7):
            file.write(text[start : start + 7])


@rule("RS-11", "CV-50")
async def test_save_is_in_an_open_canvas_within_a_second(
    launcher: Launcher, server: EaselProcess, folder: Path
) -> None:
    watched = launcher.start("watch", (*EASEL, "canvas", "watch", str(folder), "--url", server.base_url), {})
    wait_for_sync(
        lambda: "Ctrl-C stops it" in watched.output(), within=TIMEOUT_SECONDS, what="the command watches"
    )
    assert f"open {server.base_url}/canvas/main/{folder.name}" in watched.output()
    async with GatewayClient.connected(server.base_url, server.token, new_session()) as viewer:
        view = await viewer.call("canvas.get", canvasId=folder.name)
        await viewer.call("canvas.subscribe", canvasId=folder.name, afterSeq=view["descriptor"]["lastSeq"])
        for save in (replace_file, move_and_write, truncate_and_write):
            await check_delay_of_saves(server, viewer, folder, save)
            save(folder / "spec.json", json.dumps({**SPEC, "description": save.__name__}).encode())
            assert (await viewer.event()).payload["changedPaths"] == ["$spec"]
    wait_for_sync(
        lambda: watched.output().count("spec.json saved; revision") == 3,
        within=TIMEOUT_SECONDS,
        what="the saves are reported",
    )
    watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait(TIMEOUT_SECONDS) == 0
    assert "Stopped." in watched.output()
    assert "Traceback" not in watched.output()


async def check_delay_of_saves(
    server: EaselProcess, viewer: GatewayClient, folder: Path, save: Callable[[Path, bytes], None]
) -> None:
    """Save pages until one is in the open canvas within a second; each must arrive completely."""
    delays: list[float] = []
    for number in range(MAX_ATTEMPTS):
        page = f"<h1>{save.__name__} {number}</h1>".encode() * 20
        started_at, stopwatch = time.monotonic(), Stopwatch()
        save(folder / "assets" / "index.html", page)
        save_seconds = time.monotonic() - started_at
        event = await viewer.event()
        delays.append(stopwatch.seconds)
        assert event.event == "canvas.updated"
        assert "$assets/index.html" in event.payload["changedPaths"]
        shown = await shown_page(viewer, folder)
        # If the save itself was interrupted for long, a part of it was sent first.
        if save_seconds > watcher.POLL_SECONDS:
            while shown != page or event.payload["revision"] < revision(server, folder):
                event = await viewer.event()
                shown = await shown_page(viewer, folder)
        assert shown == page, "the complete page"
        if delays[-1] < SECOND:
            return
    raise AssertionError(f"no save arrived within {SECOND} s: {delays}")


async def shown_page(viewer: GatewayClient, folder: Path) -> bytes | None:
    """Return the page, None if it does not exist at this moment."""
    with contextlib.suppress(Refused):
        return (await viewer.call("canvas.asset.get", canvasId=folder.name, path="assets/index.html"))[
            "text"
        ].encode()
    return None


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_watch_ends_without_error_on_a_signal(
    server: EaselProcess, folder: Path, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(FolderWatcher, "poll", lambda _: os.kill(os.getpid(), stop))
    # The runner of the tests may ignore SIGINT; a user's shell does not.
    runners_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = run_on(server, "canvas", "watch", folder)
    finally:
        signal.signal(signal.SIGINT, runners_handler)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "Stopped.")
    assert signal.getsignal(signal.SIGTERM) is handler


def test_restarted_server_gets_the_changes_saved_during_its_outage(tmp_path: Path, folder: Path) -> None:
    with Launcher(tmp_path / "easel", settings={"DRAIN_SECONDS": "0.2"}) as launcher:
        (first,) = launcher.ready(launcher.up())
        messages: list[str] = []
        watched = watch_all(first, folder, messages)
        watched.start()
        first.kill()
        messages.clear()
        write_files(folder, {"assets/index.html": b"saved during the outage"})
        delays = [watched.poll() for _ in range(4)]
        assert delays[-1] == watcher.RETRY_SECONDS
        [message] = messages
        assert "are sent when it answers" in message, "the outage is reported once"
        (again,) = launcher.ready(launcher.again(first))
        watched.poll()
        assert messages[-1] == "The server answers again."
        assert canvas_content(again, folder.name)["assets"]["assets/index.html"] == "saved during the outage"


def test_folder_that_cannot_be_watched_is_refused_in_one_sentence(
    server: EaselProcess, tmp_path: Path, folder: Path
) -> None:
    assert "is not a folder" in refusal(run_on(server, "canvas", "watch", tmp_path / "nowhere"))
    assert "contains no canvas" in refusal(
        run_on(server, "canvas", "watch", write_files(tmp_path / "empty", {"x": b""}))
    )
    assert "easel up" in refusal(run_at("http://127.0.0.1:1", "token", "canvas", "watch", folder))
    assert "does not accept this token" in refusal(
        run_on(server, "canvas", "watch", folder, "--token", "wrong")
    )
    assert not canvas_exists(server, folder.name)


# --- start --------------------------------------------------------------------------------------------------


def test_start_creates_the_canvas_from_the_folder(server: EaselProcess, folder: Path) -> None:
    [message] = Author(server, folder).settle()
    assert message.startswith(
        "created from spec.json, state/latest.json, assets/index.html, assets/index.js; revision 1"
    )
    assert canvas_content(server, folder.name) == {
        "title": folder.name,
        "spec": SPEC,
        "state": {"service": "api"},
        "assets": {"assets/index.html": PAGE.decode(), "assets/index.js": "1"},
    }
    assert Author(server, folder).settle() == []
    assert revision(server, folder) == 1, "an equal folder is no change"


def test_state_of_the_canvas_is_kept_at_start(server: EaselProcess, folder: Path, author: Author) -> None:
    rpc(
        server,
        "canvas.patch",
        canvasId=folder.name,
        statePatch=[{"op": "add", "path": "/service", "value": "theirs"}],
    )
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/stale.css", text="x")
    write_files(folder, {"assets/index.html": b"new"})
    messages = Author(server, folder).settle()
    assert "differs from the state of the canvas, which is kept" in messages[0]
    assert "assets/index.html saved, assets/stale.css removed" in messages[1]
    found = canvas_content(server, folder.name)
    assert found["state"] == {"service": "theirs"}
    assert found["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}


# --- edits --------------------------------------------------------------------------------------------------


def test_unchanged_folder_is_neither_read_nor_sent(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("an unchanged folder must not be read or sent")

    monkeypatch.setattr(files, "read", never)
    monkeypatch.setattr(ApiClient, "call", never)
    author.settle()


def test_folder_is_sent_when_it_does_not_change_between_two_scans(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = revision(server, folder)
    for number in range(5):
        write_files(folder, {"assets/index.html": b"x" * (number + 1)})
        author.watcher.poll()
        assert author.messages == [], "the folder has changed since the last poll"
    author.watcher.poll()
    assert author.messages == [f"assets/index.html saved; revision {before + 1}"]
    assert canvas_content(server, folder.name)["assets"]["assets/index.html"] == "xxxxx"


def test_folder_that_changes_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page would be shown without the files that were saved with it, or a half of it."""
    real, page = os.fstat, folder / "assets" / "index.html"
    inode, saves = page.stat().st_ino, [b"saved during the read"]

    def fstat(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        if found.st_ino == inode and saves:
            write_files(folder, {"assets/index.html": saves.pop(), "assets/late.js": b"late"})
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(files, "RETRY_SECONDS", 0.0)
    found = files.read(folder, max_bytes=1_000_000)
    assert (found["assets/index.html"], found["assets/late.js"]) == (b"saved during the read", b"late")


def test_many_files_saved_together_are_one_change(server: EaselProcess, folder: Path, author: Author) -> None:
    before = revision(server, folder)
    write_files(
        folder,
        {f"assets/chunk-{n}.js": b"x" for n in range(12)}
        | {"spec.json": {**SPEC, "description": "New"}, "assets/index.html": b"y"},
    )
    [message] = author.settle()
    assert "and 10 more saved" in message
    assert revision(server, folder) == before + 1
    found = canvas_content(server, folder.name)
    assert len(found["assets"]) == 14
    assert found["spec"]["description"] == "New"


def test_deleted_file_is_removed_from_the_canvas(server: EaselProcess, folder: Path, author: Author) -> None:
    (folder / "assets" / "index.js").unlink()
    assert author.settle() == [f"assets/index.js removed; revision {revision(server, folder)}"]
    assert list(canvas_content(server, folder.name)["assets"]) == ["assets/index.html"]


def test_folder_with_an_invalid_file_is_reported_and_the_canvas_keeps_its_last_version(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = canvas_content(server, folder.name)
    write_files(folder, {"spec.json": b'{"version": 1,\n "actions": {', "state/latest.json": b""})
    spec, state = author.settle()
    assert spec.startswith("spec.json: must be JSON (line 2")
    assert state.startswith("state/latest.json: must be JSON (the file is empty")
    assert all("keeps its version" in text for text in (spec, state))
    write_files(folder, {"assets/index.html": b"continued"})
    assert len(author.settle()) == 2, "the folder is sent as a whole"
    assert canvas_content(server, folder.name) == before
    write_files(folder, {"spec.json": {**SPEC, "description": "Fixed"}, "state/latest.json": before["state"]})
    [message] = author.settle()
    assert message.startswith("spec.json, assets/index.html saved")
    (folder / "spec.json").unlink()
    assert author.settle() == [], "a part without a file is kept"
    assert canvas_content(server, folder.name)["spec"]["description"] == "Fixed"


# Refused: a refresh must not need a confirmation.
REFUSED_SPEC = {
    **SPEC,
    "refresh": [{"id": "r", "everyMs": 5000, "action": "look"}],
    "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"}},
}
REFUSED: list[tuple[str, Any, str]] = [
    ("spec.json", REFUSED_SPEC, "spec.json: "),
    ("assets/big.bin", b"x" * 150_000, "assets/big.bin is larger than the limit of 100000"),
    ("state/latest.json", {"n": "x" * 1_200_000}, "state/latest.json: state is larger than the limit"),
    ("assets/huge.bin", b"x" * (MAX_BYTES + 1), "assets/huge.bin: has 1000001 bytes; the limit is"),
]


@pytest.mark.parametrize("refused_file", REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_folder_is_reported_with_its_file_and_sent_after_the_next_save(
    server: EaselProcess, folder: Path, author: Author, refused_file: tuple[str, Any, str]
) -> None:
    path, content, part = refused_file
    before = canvas_content(server, folder.name)
    kept = (folder / path).read_bytes() if (folder / path).exists() else b"small"
    write_files(folder, {path: content, "assets/index.html": b"continued"})
    [refused] = author.settle()
    assert part in refused
    assert canvas_content(server, folder.name) == before
    write_files(folder, {path: kept})
    assert "assets/index.html saved" in author.settle()[0].replace("assets/big.bin, ", "")
    assert canvas_content(server, folder.name)["assets"]["assets/index.html"] == "continued"


def test_link_in_a_watched_folder_is_reported_once_and_not_followed(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = canvas_content(server, folder.name)
    (folder / "assets" / "index.js").unlink()
    (folder / "assets" / "index.js").symlink_to("/etc/hostname")
    [message] = author.settle()
    assert message.startswith("assets/index.js: must be a regular file, not a link.")
    assert canvas_content(server, folder.name) == before
    (folder / "assets" / "index.js").unlink()
    assert "assets/index.js removed" in author.settle()[0]


def test_invalid_canvas_does_not_affect_another(server: EaselProcess, tmp_path: Path) -> None:
    first, second = sorted((new_session(), new_session()))
    for name, path, content in ((first, "spec.json", b"{"), (second, "assets/index.html", PAGE)):
        write_files(tmp_path, {f"agents/main/canvases/{name}/{path}": content})
    messages: list[str] = []
    assert [place.canvas_id for place in watch_all(server, tmp_path, messages).start()] == [first, second]
    assert messages[0].startswith(f"{first}: spec.json: must be JSON")
    assert messages[1].startswith(f"{second}: created from assets/index.html")


def test_state_of_the_canvas_is_kept_unless_the_state_file_changes(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(
        server,
        "canvas.patch",
        canvasId=folder.name,
        statePatch=[{"op": "add", "path": "/typed", "value": "theirs"}],
    )
    write_files(folder, {"spec.json": {**SPEC, "description": "New"}, "assets/index.html": b"new"})
    author.settle()
    (folder / "state" / "latest.json").touch()
    author.settle()
    assert canvas_content(server, folder.name)["state"] == {"service": "api", "typed": "theirs"}
    write_files(folder, {"state/latest.json": {"service": "web"}})
    assert "state/latest.json saved" in author.settle()[0]
    assert canvas_content(server, folder.name)["state"] == {"service": "web"}


CHANGES_BY_OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("assets/index.js", "canvas.asset.put", {"path": "assets/index.js", "text": "theirs"}),
    ("assets/theirs.css", "canvas.asset.put", {"path": "assets/theirs.css", "text": "theirs"}),
    ("assets/index.js", "canvas.asset.delete", {"path": "assets/index.js"}),
    ("spec.json", "canvas.patch", {"spec": {**SPEC, "description": "theirs"}}),
]


@rule("CV-45")
@pytest.mark.parametrize("change", CHANGES_BY_OTHERS, ids=["changed", "added", "deleted", "spec"])
def test_change_of_the_canvas_by_others_is_replaced_only_by_a_second_save(
    server: EaselProcess, folder: Path, author: Author, change: tuple[str, str, dict[str, Any]]
) -> None:
    path, method, params = change
    rpc(server, method, canvasId=folder.name, **params)
    theirs = canvas_content(server, folder.name)
    write_files(folder, {"assets/index.html": b"new"})
    [message] = author.settle()
    assert message.startswith(f"{path} changed on the canvas as well, so nothing was sent. Save again")
    assert "easel canvas export" in message
    assert canvas_content(server, folder.name) == theirs
    (folder / "assets" / "index.html").touch()
    [message] = author.settle()
    assert path in message
    found = canvas_content(server, folder.name)
    assert found["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}
    assert found["spec"] == SPEC


def test_title_is_saved_and_a_foreign_descriptor_is_refused(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    write_files(folder, {"descriptor.json": {"canvasId": folder.name, "title": "Deploy cockpit"}})
    assert "descriptor.json saved" in author.settle()[0]
    assert canvas_content(server, folder.name)["title"] == "Deploy cockpit"
    write_files(folder, {"descriptor.json": {"canvasId": "another-canvas", "title": "No"}})
    assert "another-canvas" in author.settle()[0]
    assert canvas_content(server, folder.name)["title"] == "Deploy cockpit"


def test_temporary_files_of_editors_are_not_sent(server: EaselProcess, folder: Path, author: Author) -> None:
    temporary = ("assets/index.html~", "assets/index.html___jb_tmp___", "assets/.index.html.swp")
    write_files(folder, dict.fromkeys(temporary, b"x") | {"assets/4.txt": b"y"})
    author.settle()
    assert sorted(canvas_content(server, folder.name)["assets"]) == [
        "assets/4.txt",
        "assets/index.html",
        "assets/index.js",
    ]


def test_deleted_canvas_is_created_again_with_the_next_save(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(server, "canvas.delete", canvasId=folder.name)
    assert author.settle() == []
    write_files(folder, {"assets/index.html": b"new"})
    messages = author.settle()
    assert messages[0] == "The canvas was deleted; it is created again."
    assert canvas_content(server, folder.name)["assets"] == {
        "assets/index.html": "new",
        "assets/index.js": "1",
    }


def test_missing_folder_does_not_change_the_canvas(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = canvas_content(server, folder.name)
    folder.rename(folder.with_name("moved"))
    [message] = author.settle()
    assert message == f"{folder}: No such file or directory. The canvas keeps its version."
    assert canvas_content(server, folder.name) == before
    folder.with_name("moved").rename(folder)
    assert author.settle() == []
    write_files(folder, {"assets/index.html": b"back"})
    assert author.settle()[0].startswith("assets/index.html saved")


def test_canvas_created_later_is_watched_too(server: EaselProcess, tmp_path: Path) -> None:
    messages: list[str] = []
    first, second = new_session(), new_session()
    write_files(tmp_path, {f"agents/main/canvases/{first}/spec.json": SPEC})
    folder_watcher = watch_all(server, tmp_path, messages)
    assert [directory.canvas_id for directory in folder_watcher.start()] == [first]
    write_files(tmp_path, {f"agents/ops/canvases/{second}/assets/index.html": b"x"})
    wait_for_sync(
        lambda: folder_watcher.poll() > 0 and any(text.startswith(f"{second}: created") for text in messages),
        within=TIMEOUT_SECONDS,
        what="the new canvas is sent",
    )
    assert rpc(server, "canvas.get", canvasId=second)["descriptor"]["agentId"] == "ops"
    assert messages[0].startswith(f"{first}: created")


async def test_concurrent_saves_and_state_changes_are_both_kept(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    """The author saves pages while a user changes the state."""

    async def change_state() -> None:
        async with GatewayClient.connected(server.base_url, server.token, new_session()) as user:
            for number in range(30):
                await user.call(
                    "canvas.patch",
                    canvasId=folder.name,
                    statePatch=[{"op": "add", "path": f"/w{number}", "value": number}],
                )

    changing = asyncio.create_task(change_state())
    for number in range(10):
        write_files(
            folder,
            {
                "assets/index.html": f"page {number}".encode(),
                "spec.json": {**SPEC, "description": str(number)},
            },
        )
        await asyncio.to_thread(author.settle)
    await changing
    found = canvas_content(server, folder.name)
    assert found["assets"]["assets/index.html"] == "page 9"
    assert found["spec"]["description"] == "9"
    assert found["state"] == {"service": "api"} | {f"w{number}": number for number in range(30)}


def test_export_into_a_watched_folder_does_not_change_the_canvas(
    server: EaselProcess, tmp_path: Path
) -> None:
    name = new_session()
    rpc(server, "canvas.create", canvasId=name, spec=SPEC, assets={"assets/index.html": "x"})
    output_of(run_on(server, "canvas", "export", name, tmp_path))
    author = Author(server, tmp_path / "agents" / "main" / "canvases" / name)
    author.settle()
    rpc(
        server,
        "canvas.patch",
        canvasId=name,
        title="Another",
        statePatch=[{"op": "add", "path": "/n", "value": 1}],
    )
    output_of(run_on(server, "canvas", "export", name, tmp_path))
    before = revision(server, author.folder)
    assert author.settle() == []
    assert revision(server, author.folder) == before


# --- acceptance ---------------------------------------------------------------------------------------------


def is_accepted(server: EaselProcess, folder: Path) -> bool:
    return rpc(server, "canvas.get", canvasId=folder.name)["accepted"]


@rule("RS-59")
@pytest.mark.parametrize("saved", ["spec.json", "assets/index.html"])
def test_saved_canvas_needs_confirmations_until_it_is_accepted(
    server: EaselProcess, folder: Path, saved: str
) -> None:
    """Else a program that can write into the folder, such as an agent, could run commands as the watching
    user.
    """
    author = Author(server, folder, is_accepted=False)
    author.settle()
    assert not is_accepted(server, folder)
    rpc(server, "canvas.accept", canvasId=folder.name, revision=revision(server, folder))
    assert author.settle() == []
    assert is_accepted(server, folder), "nothing was saved since the acceptance"
    (folder / saved).write_bytes((folder / saved).read_bytes() + b"\n ")
    if saved == "spec.json":
        (folder / saved).write_text(json.dumps({**SPEC, "title": "New"}))
    [message] = author.settle()
    assert f"{saved} saved" in message
    assert not is_accepted(server, folder)


@rule("RS-59")
def test_accept_option_accepts_existing_and_later_files(server: EaselProcess, folder: Path) -> None:
    Author(server, folder, is_accepted=False).settle()
    author = Author(server, folder, is_accepted=True)
    author.settle()
    assert is_accepted(server, folder), "the existing files are accepted too"
    (folder / "assets/index.html").write_bytes(b"<p>another</p>")
    assert len(author.settle()) == 1
    assert is_accepted(server, folder)
