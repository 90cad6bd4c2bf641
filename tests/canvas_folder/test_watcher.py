"""`easel canvas watch`: a folder is synchronised while its author edits it, as editors really save. RS-11"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from easel.canvas_folder import files, watcher
from easel.canvas_folder.api_client import ApiClient
from easel.canvas_folder.watcher import CanvasWatcher, FolderWatcher, WatchLimits
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.canvas_folders import (
    PAGE,
    PICTURE,
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
LIMITS = WatchLimits(asset_bytes=100_000, request_bytes=1_000_000)


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
    """A watched folder that the test polls itself, with a clock of its own."""

    def __init__(
        self, server: EaselProcess, folder: Path, limits: WatchLimits = LIMITS, *, is_accepted: bool = True
    ) -> None:
        self.messages: list[str] = []
        self.clock = 0.0
        self.folder = folder
        [directory] = files.find_canvases(folder)
        client = ApiClient(server.base_url, server.token)
        self.watcher = CanvasWatcher(
            directory, client, limits, self.messages.append, is_accepted=is_accepted, now=lambda: self.clock
        )

    def poll(self) -> bool:
        self.clock += watcher.POLL_SECONDS
        return self.watcher.poll()

    def settle(self) -> list[str]:
        """Poll until nothing is left to do, and return the messages of that time."""
        before = len(self.messages)
        for _ in range(10):
            self.poll()
        return self.messages[before:]


@pytest.fixture
def author(server: EaselProcess, folder: Path) -> Author:
    started = Author(server, folder)
    started.watcher.start()
    assert started.settle() == []
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
        assert (event.event, event.payload["changedPaths"]) == ("canvas.updated", ["$assets/index.html"])
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
        author = Author(first, folder)
        author.watcher.start()
        author.settle()
        first.kill()
        write_files(folder, {"assets/index.html": b"saved during the outage"})
        [message] = author.settle()
        assert "are sent when it answers" in message, "the outage is reported once"
        (again,) = launcher.ready(launcher.again(first))
        author.clock += watcher.RETRY_SECONDS
        assert author.settle()[-1] == "The server answers again."
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
    author = Author(server, folder)
    author.watcher.start()
    [message] = author.messages
    assert message.startswith(
        "created from spec.json, state/latest.json, assets/index.html, assets/index.js; revision 1"
    )
    assert canvas_content(server, folder.name) == {
        "title": folder.name,
        "spec": SPEC,
        "state": {"service": "api"},
        "assets": {"assets/index.html": PAGE.decode(), "assets/index.js": "1"},
    }
    again = Author(server, folder)
    again.watcher.start()
    assert again.messages == []
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
    again = Author(server, folder)
    again.watcher.start()
    assert "differs from the state of the canvas, which is kept" in again.messages[0]
    assert "assets/index.html saved, assets/stale.css removed" in again.messages[1]
    found = canvas_content(server, folder.name)
    assert found["state"] == {"service": "theirs"}
    assert found["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}


# --- edits --------------------------------------------------------------------------------------------------


def test_unchanged_folder_is_neither_read_nor_sent(
    server: EaselProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = Author(server, folder)
    author.watcher.start()
    author.settle()

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("an unchanged folder must not be read or sent")

    monkeypatch.setattr(files, "read", never)
    monkeypatch.setattr(ApiClient, "call", never)
    assert [author.poll() for _ in range(20)] == [False] * 20


def test_folder_is_sent_when_it_does_not_change_between_two_scans(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = revision(server, folder)
    for number in range(5):
        write_files(folder, {"assets/index.html": b"x" * (number + 1)})
        assert not author.poll(), "the folder has changed since the last poll"
    assert author.poll()
    assert canvas_content(server, folder.name)["assets"]["assets/index.html"] == "xxxxx"
    assert revision(server, folder) == before + 1


def test_file_that_changes_while_it_is_read_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, real, page = files.scan(folder), os.fstat, folder / "assets" / "index.html"
    inode = page.stat().st_ino

    def fstat(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        if found.st_ino == inode:
            page.write_bytes(b"write_files after the scan")
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(files.FileChanging):
        files.read(folder, scanned, max_bytes=1_000_000)


def test_folder_that_changes_while_it_is_read_is_read_again(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page would be shown without the files that were saved with it."""
    before, real, reads = revision(server, folder), files.read, 0

    def read(*args: Any, **kwargs: Any) -> Any:
        nonlocal reads
        reads += 1
        found = real(*args, **kwargs)
        if reads == 1:
            write_files(folder, {"assets/late.js": b"late"})
        return found

    monkeypatch.setattr(files, "read", read)
    write_files(folder, {"assets/index.html": b"needs late.js"})
    assert not author.poll()
    assert not author.poll(), "the folder has changed while it was read"
    assert (reads, revision(server, folder)) == (1, before)
    assert author.settle() == [f"assets/index.html, assets/late.js saved; revision {before + 1}"]


def test_folder_that_changes_all_the_time_is_sent_after_a_maximum_wait(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    looks = 0
    while looks < 30:
        looks += 1
        write_files(folder, {"assets/log.txt": b"x" * looks})
        if author.poll():
            break
    assert looks * watcher.POLL_SECONDS == pytest.approx(
        watcher.MAX_WAIT_SECONDS, abs=2 * watcher.POLL_SECONDS
    )
    assert canvas_content(server, folder.name)["assets"]["assets/log.txt"] == "x" * looks


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


def test_invalid_spec_is_reported_once_and_the_last_good_one_is_kept(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    good = canvas_content(server, folder.name)["spec"]
    write_files(folder, {"spec.json": b'{"version": 1,\n "actions": {'})
    [message] = author.settle()
    assert message.startswith("spec.json: must be JSON (line 2")
    assert "keeps its version" in message
    write_files(folder, {"assets/index.html": b"continued"})
    [message] = author.settle()
    assert message.startswith("assets/index.html saved")
    assert canvas_content(server, folder.name)["spec"] == good
    write_files(folder, {"spec.json": {**SPEC, "description": "Fixed"}})
    [message] = author.settle()
    assert message.startswith("spec.json saved")
    write_files(folder, {"spec.json": b""})
    assert "the file is empty" in author.settle()[0]
    assert canvas_content(server, folder.name)["spec"]["description"] == "Fixed"
    (folder / "spec.json").unlink()
    assert author.settle() == []
    assert canvas_content(server, folder.name)["spec"]["description"] == "Fixed"


# Refused: a refresh must not need a confirmation.
REFUSED_SPEC = {
    **SPEC,
    "refresh": [{"id": "r", "everyMs": 5000, "action": "look"}],
    "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"}},
}


def test_refused_spec_does_not_hold_up_other_files(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    write_files(
        folder,
        {
            "spec.json": REFUSED_SPEC,
            "state/latest.json": {"n": 2},
            "assets/index.html": b"continued",
            "assets/logo.png": PICTURE,
        },
    )
    (folder / "assets" / "index.js").unlink()
    [refused] = [text for text in author.settle() if "refresh" in text]
    assert refused.startswith("spec.json: ")
    found = canvas_content(server, folder.name)
    assert found["spec"] == SPEC
    assert found["state"] == {"n": 2}
    assert sorted(found["assets"]) == ["assets/index.html", "assets/logo.png"]
    assert found["assets"]["assets/index.html"] == "continued"
    write_files(folder, {"assets/index.html": b"continued again"})
    [message] = author.settle()
    assert message.startswith("assets/index.html saved"), "a refused file is reported once"
    write_files(folder, {"spec.json": REFUSED_SPEC})
    assert [text for text in author.settle() if "refresh" in text], "and again after its next save"


def test_invalid_assets_neither_hold_up_nor_remove_others(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    (folder / "assets" / "index.js").unlink()
    (folder / "assets" / "index.js").symlink_to("/etc/hostname")
    write_files(
        folder,
        {
            "assets/index.html": b"continued",
            "assets/big.bin": b"x" * (LIMITS.asset_bytes + 1),
            "assets/-rf": b"x",
        },
    )
    messages = author.settle()
    assert [text.partition(":")[0] for text in messages[:3]] == [
        "assets/-rf",
        "assets/big.bin",
        "assets/index.js",
    ]
    assert canvas_content(server, folder.name)["assets"] == {
        "assets/index.html": "continued",
        "assets/index.js": "1",
    }
    for path in ("index.js", "big.bin", "-rf"):
        (folder / "assets" / path).unlink()
    assert "assets/index.js removed" in author.settle()[0]


TOO_LARGE = b"\xff" * 150_000  # for the server, but not for the watcher
LARGE_LIMITS = WatchLimits(asset_bytes=1_000_000, request_bytes=1_000_000)


def test_refused_asset_does_not_hold_up_a_new_canvas(server: EaselProcess, folder: Path) -> None:
    write_files(folder, {"assets/big.bin": TOO_LARGE, "assets/logo.png": PICTURE})
    (folder / "state" / "latest.json").unlink()
    author = Author(server, folder, LARGE_LIMITS)
    author.watcher.start()
    [refused] = [text for text in author.messages if text.startswith("assets/big.bin")]
    assert "EASEL_MAX_ASSET_BYTES" in refused
    found = canvas_content(server, folder.name)
    assert (found["spec"], found["state"]) == (SPEC, SPEC["state"]), (
        "the canvas has the initial state of its spec"
    )
    assert sorted(found["assets"]) == ["assets/index.html", "assets/index.js", "assets/logo.png"]
    author.messages.clear()
    assert author.settle() == [], "a refused file is reported once"
    write_files(folder, {"assets/index.html": b"continued", "assets/big.bin": b"small"})
    author.settle()
    assert {
        path: canvas_content(server, folder.name)["assets"][path]
        for path in ("assets/index.html", "assets/big.bin")
    } == {
        "assets/index.html": "continued",
        "assets/big.bin": "small",
    }


def test_new_canvas_with_a_refused_spec_has_all_other_files(server: EaselProcess, folder: Path) -> None:
    write_files(
        folder,
        {
            "spec.json": REFUSED_SPEC,
            "descriptor.json": {"canvasId": folder.name, "title": "Cockpit"},
            "assets/big.bin": TOO_LARGE,
        },
    )
    author = Author(server, folder, LARGE_LIMITS)
    author.watcher.start()
    refused = [text for text in author.messages if "keeps its version" in text]
    assert [
        text.startswith(path) for text, path in zip(refused, ("spec.json: ", "assets/big.bin "), strict=True)
    ] == [True, True]
    found = canvas_content(server, folder.name)
    assert (found["title"], found["state"]) == ("Cockpit", {"service": "api"})
    assert sorted(found["assets"]) == ["assets/index.html", "assets/index.js"]
    write_files(folder, {"spec.json": SPEC})
    assert [text for text in author.settle() if "spec.json saved" in text]
    assert canvas_content(server, folder.name)["spec"] == SPEC


def test_deleted_canvas_is_created_again_without_refused_files(server: EaselProcess, folder: Path) -> None:
    author = Author(server, folder, LARGE_LIMITS)
    author.watcher.start()
    write_files(folder, {"assets/big.bin": TOO_LARGE})
    author.settle()
    rpc(server, "canvas.delete", canvasId=folder.name)
    write_files(folder, {"assets/index.html": b"new"})
    messages = author.settle()
    assert messages[0] == "The canvas was deleted; it is created again."
    assert [text for text in messages if text.startswith("assets/big.bin")]
    assert canvas_content(server, folder.name)["assets"] == {
        "assets/index.html": "new",
        "assets/index.js": "1",
    }


def test_refused_file_of_one_canvas_does_not_affect_another(server: EaselProcess, tmp_path: Path) -> None:
    first, second = sorted((new_session(), new_session()))
    for name, path, value in (
        (first, "index.html", PAGE),
        (first, "big.bin", TOO_LARGE),
        (second, "index.html", PAGE),
    ):
        write_files(tmp_path, {f"agents/main/canvases/{name}/assets/{path}": value})
    messages: list[str] = []
    folder_watcher = FolderWatcher(
        tmp_path,
        None,
        ApiClient(server.base_url, server.token),
        LARGE_LIMITS,
        messages.append,
        is_accepted=True,
    )
    assert [directory.canvas_id for directory in folder_watcher.start()] == [first, second]
    assert canvas_exists(server, first)
    assert canvas_exists(server, second)


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


def test_assets_added_on_the_canvas_are_kept(server: EaselProcess, folder: Path, author: Author) -> None:
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/theirs.css", text="theirs")
    write_files(folder, {"assets/index.html": b"new", "assets/index.js": b"2"})
    author.settle()
    assert canvas_content(server, folder.name)["assets"] == {
        "assets/index.html": "new",
        "assets/index.js": "2",
        "assets/theirs.css": "theirs",
    }


SAVED_TOGETHER: list[dict[str, Any]] = [
    {"assets/index.html": b"new", "assets/new.css": b"b{}"},
    {"assets/index.html": b"new", "spec.json": {**SPEC, "description": "New"}},
]


@pytest.mark.parametrize("saved", SAVED_TOGETHER, ids=["two assets", "an asset and the spec"])
def test_asset_changed_on_the_canvas_is_kept_until_the_author_saves_it(
    server: EaselProcess, folder: Path, author: Author, saved: dict[str, Any]
) -> None:
    def script() -> str:
        return canvas_content(server, folder.name)["assets"]["assets/index.js"]

    write_files(folder, {"assets/a.css": b"a", "assets/b.css": b"b"})
    author.settle()
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/index.js", text="theirs")
    write_files(folder, saved)
    messages = author.settle()
    assert messages[0] == "assets/index.js was changed on the canvas; that version is kept until you save it."
    assert "saved; revision" in messages[1]
    assert (script(), canvas_content(server, folder.name)["assets"]["assets/index.html"]) == ("theirs", "new")
    write_files(folder, {"assets/a.css": b"aa", "assets/b.css": b"bb"})
    assert [text for text in author.settle() if "was changed on" in text] == [], "it is reported once"
    assert script() == "theirs"
    write_files(folder, {"assets/index.js": b"mine", "assets/a.css": b"aaa"})
    author.settle()
    assert script() == "mine"
    before = revision(server, folder)
    write_files(folder, {"assets/b.css": b"bbb", "assets/a.css": b"aaaa"})
    assert author.settle() == [f"assets/a.css, assets/b.css saved; revision {before + 1}"], (
        "all files are one change again"
    )


def test_concurrent_change_of_an_asset_is_not_overwritten(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it happens in every attempt: the last attempt sends the files one by one."""
    real, times = ApiClient.call, 0

    def call(self: ApiClient, method: str, **params: Any) -> Any:
        nonlocal times
        if method == "canvas.upsert" and "assets" in params:
            times += 1
            rpc(
                server,
                "canvas.asset.put",
                canvasId=folder.name,
                path="assets/index.js",
                text=f"theirs {times}",
            )
        return real(self, method, **params)

    write_files(folder, {"assets/a.css": b"a"})
    author.settle()
    monkeypatch.setattr(ApiClient, "call", call)
    write_files(folder, {"assets/index.html": b"new", "assets/a.css": b"aa"})
    author.settle()
    assert times >= 1
    assert canvas_content(server, folder.name)["assets"] == {
        "assets/a.css": "aa",
        "assets/index.html": "new",
        "assets/index.js": f"theirs {times}",
    }


def test_save_of_one_asset_fetches_no_others(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, methods = ApiClient.call, list[str]()

    def call(self: ApiClient, method: str, **params: Any) -> Any:
        methods.append(method)
        return real(self, method, **params)

    monkeypatch.setattr(ApiClient, "call", call)
    for number in (b"1", b"2"):
        write_files(folder, {"assets/index.html": number})
        author.settle()
    assert "canvas.asset.get" not in methods
    assert methods.count("canvas.asset.put") == 2


def test_save_of_one_file_does_not_hide_a_change_on_the_canvas(server: EaselProcess, folder: Path) -> None:
    """Such a save is two calls, one without effect, so that the revision alone does not show the other
    change.
    """
    author = Author(server, folder, is_accepted=False)
    author.watcher.start()
    author.settle()
    for number in (b"0", b"1"):
        write_files(folder, {"assets/index.html": number, "assets/a.css": number})
        author.settle()
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/index.js", text="theirs")
    write_files(folder, {"assets/index.html": b"2"})
    author.settle()
    write_files(folder, {"assets/index.html": b"3", "assets/a.css": b"3"})
    author.settle()
    assert canvas_content(server, folder.name)["assets"]["assets/index.js"] == "theirs"


def test_title_is_saved_and_a_foreign_descriptor_is_refused(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    write_files(folder, {"descriptor.json": {"canvasId": folder.name, "title": "Deploy cockpit"}})
    assert "descriptor.json saved" in author.settle()[0]
    assert canvas_content(server, folder.name)["title"] == "Deploy cockpit"
    write_files(folder, {"descriptor.json": {"canvasId": "another-canvas", "title": "No"}})
    assert "another-canvas" in author.settle()[0]
    assert canvas_content(server, folder.name)["title"] == "Deploy cockpit"


def test_temporary_files_of_editors_are_neither_sent_nor_removed(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/notes~", text="a real asset")
    write_files(
        folder,
        {
            "assets/index.html~": b"x",
            "assets/index.html___jb_tmp___": b"x",
            "assets/.index.html.swp": b"x",
            "assets/4.txt": b"y",
        },
    )
    author.settle()
    again = Author(server, folder)
    again.watcher.start()
    assert sorted(canvas_content(server, folder.name)["assets"]) == [
        "assets/4.txt",
        "assets/index.html",
        "assets/index.js",
        "assets/notes~",
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
    assert "cannot be read" in message
    assert canvas_content(server, folder.name) == before
    folder.with_name("moved").rename(folder)
    assert author.settle() == []
    write_files(folder, {"assets/index.html": b"back"})
    assert author.settle()[0].startswith("assets/index.html saved")


def test_canvas_created_later_is_watched_too(server: EaselProcess, tmp_path: Path) -> None:
    messages: list[str] = []
    first, second = new_session(), new_session()
    write_files(tmp_path, {f"agents/main/canvases/{first}/spec.json": SPEC})
    folder_watcher = FolderWatcher(
        tmp_path, None, ApiClient(server.base_url, server.token), LIMITS, messages.append, is_accepted=True
    )
    assert [directory.canvas_id for directory in folder_watcher.start()] == [first]
    write_files(tmp_path, {f"agents/ops/canvases/{second}/assets/index.html": b"x"})
    wait_for_sync(
        lambda: (
            folder_watcher.poll() is None and any(text.startswith(f"{second}: created") for text in messages)
        ),
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
    author.watcher.start()
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
    author.watcher.start()
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
    Author(server, folder, is_accepted=False).watcher.start()
    author = Author(server, folder, is_accepted=True)
    author.watcher.start()
    assert is_accepted(server, folder), "the existing files are accepted too"
    (folder / "assets/index.html").write_bytes(b"<p>another</p>")
    assert len(author.settle()) == 1
    assert is_accepted(server, folder)
