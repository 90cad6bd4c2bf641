"""Watch canvas folders while their author edits them: each save is in the open canvas within a second.

Owns when a folder counts as saved. Editors write by renaming, or truncate a file and fill it, and a build
writes many files at once; so a folder is read when two scans in a row are equal. It is sent as a whole: while
one file is invalid or refused, the canvas keeps its last good version.

Users work on the canvas at the same time. Its state is replaced only when the state file of the folder was
changed. Where others have changed a file, the author is told, and the next save decides.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from easel.canvas_folder import files
from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.canvas_folder.files import CanvasDir, FileStamp
from easel.canvas_folder.sync import CONFLICT, ServerCanvas, compare, fetch, name_files, push, read_canvas
from easel.core.canvas.folder import STATE, FolderCanvas, escape_unprintable, is_identical_json
from easel.errors import BadInput

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0  # while the server does not answer
FIND_SECONDS = 1.0  # between two searches for new canvases
MAX_ATTEMPTS = 5  # of a push while users change the state
FATAL_ERRORS = frozenset({"NOT_SIGNED_IN", "FORBIDDEN"})  # no later save can succeed
EDITOR_SUFFIXES = ("~", "___jb_tmp___", "___jb_old___")  # of files that editors create beside an asset

KEPT = "The canvas keeps its version."

Report = Callable[[str], None]


class CanvasWatcher:
    """Synchronises the folder of one canvas each time `poll` is called."""

    def __init__(
        self, place: CanvasDir, report: Report, *, client: ApiClient, max_bytes: int, is_accepted: bool
    ) -> None:
        self._place = place
        self._client = client
        self._max_bytes = max_bytes  # of an asset
        self._report = report
        self._is_accepted = is_accepted  # accept every save
        self._accepted = 0  # the revision that was accepted last
        self._known: ServerCanvas | None = None  # the canvas as it was last read or sent
        self._scanned: dict[str, FileStamp] | None = None
        self._handled: dict[str, FileStamp] | None = None
        self._problem = ""  # of the last scan

    def poll(self) -> None:
        """Send the folder if it was saved and is not being written. Raises `ServerUnreachable`."""
        try:
            scanned = files.scan(self._place.folder)
        except (OSError, BadInput) as problem:
            if (text := _describe(problem)) != self._problem:
                self._report(f"{text} {KEPT}")
            self._problem = text
            return
        is_quiet, self._scanned, self._problem = scanned == self._scanned, scanned, ""
        if not is_quiet or scanned == self._handled:
            return
        try:
            for _ in range(MAX_ATTEMPTS):
                if self._synchronize():
                    self._handled = scanned
                    return
        except (RequestRefused, BadInput, OSError) as problem:
            if isinstance(problem, RequestRefused) and problem.name in FATAL_ERRORS:
                raise
            self._report(f"{_describe(problem)} {KEPT}")
            self._handled = scanned

    def _synchronize(self) -> bool:
        """Send the folder as it is now. Returns False if the canvas has changed since it was read."""
        found = read_canvas(self._place, max_bytes=self._max_bytes)
        if found.problems:
            for problem in found.problems:
                self._report(f"{problem} {KEPT}")
            return True
        known = self._known or self._fetch(found.canvas)
        assets = {
            path: content
            for path, content in found.canvas.assets.items()
            if not path.endswith(EDITOR_SUFFIXES) or path in known.canvas.assets
        }
        folder = replace(found.canvas, assets=assets)
        try:
            result = push(self._client, known, folder, is_accepted=self._is_accepted)
        except RequestRefused as problem:
            if problem.name != CONFLICT:
                raise
            return self._read_again(known, folder)
        revision = known.revision if result is None else result.revision
        self._known = ServerCanvas(folder.with_missing_parts_of(known.canvas), revision=revision)
        if result is not None:
            self._report(result.describe())
            for warning in result.warnings:
                self._report(f"The server warns: {escape_unprintable(warning)}")
        if self._is_accepted and self._accepted != revision:
            accepted = self._client.call("canvas.accept", canvasId=folder.canvas_id, revision=revision)
            self._accepted = accepted["revision"]
            self._known = replace(self._known, revision=self._accepted)
        return True

    def _fetch(self, folder: FolderCanvas) -> ServerCanvas:
        """Return the canvas at the start. Its state is kept: it counts as equal to that of the folder."""
        found = fetch(self._client, folder.canvas_id, folder.agent_id)
        if found.revision == 0:
            return found
        if folder.state is not None and not is_identical_json(folder.state, found.canvas.state):
            self._report(f"{STATE} differs from the state of the canvas, which is kept; import replaces it.")
        return replace(found, canvas=replace(found.canvas, state=folder.state))

    def _read_again(self, before: ServerCanvas, folder: FolderCanvas) -> bool:
        """Read the canvas after a conflict. Returns True if others changed a file: its author must decide."""
        now = fetch(self._client, folder.canvas_id, folder.agent_id)
        if now.revision == 0:
            self._report("The canvas was deleted; it is created again.")
        elif not is_identical_json(folder.state, now.canvas.state):
            now = replace(now, canvas=replace(now.canvas, state=before.canvas.state))
        self._known = now
        pushed = compare(now.canvas, folder).files
        changed = [file for file in compare(before.canvas, now.canvas).files if file in pushed]
        if 0 in (before.revision, now.revision) or not changed:
            return False
        self._report(
            f"{name_files(changed)} changed on the canvas as well, so nothing was sent. Save again to "
            "replace that, or take it into the folder with `easel canvas export`."
        )
        return True


Watch = Callable[[CanvasDir, Report], CanvasWatcher]


class FolderWatcher:
    """Watches all canvases in a folder, including those that are created later."""

    def __init__(self, folder: Path, agent_id: str | None, report: Report, watch: Watch) -> None:
        self._folder = folder
        self._agent_id = agent_id
        self._report = report
        self._watch = watch
        self._watchers: dict[Path, CanvasWatcher] = {}
        self._problem = ""
        self._is_waiting = False
        self._find_at = 0.0

    def start(self) -> list[CanvasDir]:
        """Send the canvases that exist now and return them. Raises if the server cannot be used."""
        found = files.find_canvases(self._folder, self._agent_id)
        for place in found:
            watcher = self._add(place)
            watcher.poll()
            watcher.poll()  # a folder is sent when two scans are equal
        return found

    def poll(self) -> float:
        """Poll each canvas, and search for new ones. Returns the seconds until the next poll."""
        try:
            for watcher in self._watchers.values():
                watcher.poll()
        except ServerUnreachable as problem:
            if not self._is_waiting:
                self._report(f"{problem} Saved changes are sent when it answers again.")
            self._is_waiting = True
            return RETRY_SECONDS
        if self._is_waiting:
            self._is_waiting = False
            self._report("The server answers again.")
        if time.monotonic() >= self._find_at:
            self._find_at = time.monotonic() + FIND_SECONDS
            self._find_new()
        return POLL_SECONDS

    def _find_new(self) -> None:
        try:
            for folder in files.find_folders(self._folder, self._agent_id):
                if folder not in self._watchers:
                    self._add(files.identify(folder, self._agent_id))
        except (BadInput, OSError) as problem:
            if (text := _describe(problem)) != self._problem:
                self._report(text)
            self._problem = text

    def _add(self, place: CanvasDir) -> CanvasWatcher:
        watcher = self._watch(place, lambda text: self._report(f"{place.canvas_id}: {text}"))
        self._watchers[place.folder] = watcher
        return watcher


def _describe(problem: Exception) -> str:
    text = f"{problem.filename}: {problem.strerror}." if isinstance(problem, OSError) else str(problem)
    return escape_unprintable(text)
