"""Watch canvas folders while their author edits them: each save is in the open canvas within a second.

Owns when a folder counts as saved. Editors write by renaming, or truncate a file and fill it, and a build
writes many files at once; so a folder is read when two scans in a row are equal, and only as a consistent set
of files. A file that is invalid or refused is reported once and sent again after its next save: the canvas
keeps the last good version, and all other files are synchronised.

Users work on the canvas at the same time. Its state is replaced only when the state file of the folder was
changed. Only files that the author saved are sent: they are merged with the assets of the server, so that
assets that users added or changed are kept.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from easel.canvas_folder import files
from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.canvas_folder.files import CanvasDir, FileChanging, FileStamp, Scan, is_editor_file
from easel.canvas_folder.sync import (
    CONFLICT,
    MAX_ATTEMPTS,
    Difference,
    ServerCanvas,
    SyncResult,
    accept,
    check_agent,
    compare,
    create_empty,
    exists,
    fetch,
    initial_state,
    push,
    push_file,
)
from easel.core.canvas.assets import FOLDER
from easel.core.canvas.folder import (
    DESCRIPTOR,
    SPEC,
    STATE,
    FolderCanvas,
    Problem,
    escape_unprintable,
    is_identical_json,
    read_files,
)
from easel.errors import BadInput

POLL_SECONDS = 0.2
MAX_WAIT_SECONDS = 2.0  # a folder that changes all the time is read after this time
RETRY_SECONDS = 1.0
FIND_SECONDS = 1.0  # between two searches for new canvases
FATAL_ERRORS = frozenset({"NOT_SIGNED_IN", "FORBIDDEN"})  # no later save can succeed

# The members of a canvas that each JSON file defines.
JSON_FILES: Mapping[str, Sequence[str]] = {
    DESCRIPTOR: ("title", "owner_session_key"),
    SPEC: ("spec",),
    STATE: ("state",),
}

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    asset_bytes: int
    request_bytes: int


class _OnceReporter:
    """Reports a message unless it is the same as the last one."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = ""

    def __call__(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._report(text)

    def reset(self) -> None:
        self._last = ""


class CanvasWatcher:
    """Synchronises the folder of one canvas each time `poll` is called."""

    def __init__(
        self,
        directory: CanvasDir,
        client: ApiClient,
        limits: WatchLimits,
        report: Report,
        *,
        is_accepted: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._is_accepted = is_accepted  # accept every save
        self._client = client
        self._limits = limits
        self._report = report
        self._report_once = _OnceReporter(report)
        self._now = now
        self._sent = self._empty()  # the content of the folder that was sent
        self._kept: set[str] = set()  # assets that users have changed, which was reported
        self._refused: dict[str, FileStamp | None] = {}  # refused files with their stamps
        self._handled: Scan | None = None
        self._scanned = Scan()
        self._changed_at: float | None = None
        self._retry_at: float | None = None
        self._problems: set[str] = set()

    def start(self) -> None:
        """Send the folder to the server, except the state if the canvas exists already."""
        self._scanned = files.scan(self._directory.folder)
        canvas = self._parse(*files.read_settled(self._directory.folder, max_bytes=self._limits.asset_bytes))
        on_server = fetch(self._client, canvas.canvas_id)
        if on_server is None:
            self._send(None, canvas)
            return
        check_agent(on_server, canvas.agent_id)
        current = on_server.canvas
        if canvas.state is not None and not is_identical_json(canvas.state, current.state):
            self._report(
                f"{STATE} differs from the state of the canvas, which is kept; "
                "`easel canvas import` replaces it."
            )
        # At the start the folder defines all assets; afterwards only those that the author saves.
        self._sent = replace(
            current,
            state=canvas.state,
            assets={path: content for path, content in current.assets.items() if not is_editor_file(path)},
        )
        self._send(on_server, canvas)

    def poll(self) -> bool:
        """Send the folder if it was saved and is not being written. Returns whether it was read."""
        try:
            scanned = files.scan(self._directory.folder)
        except (OSError, BadInput) as problem:
            self._report_once(f"The folder cannot be read ({_describe(problem)}); the canvas is not changed.")
            return False
        is_quiet, self._scanned = scanned == self._scanned, scanned
        if scanned == self._handled:
            self._changed_at = None
            return False
        now = self._now()
        self._changed_at = now if self._changed_at is None else self._changed_at
        if (not is_quiet and not self._is_overdue()) or (self._retry_at is not None and now < self._retry_at):
            return False
        try:
            self._handle(scanned)
        except (FileChanging, OSError):
            return False  # the folder is being written to
        except ServerUnreachable as problem:
            self._retry_at = now + RETRY_SECONDS
            self._report_once(f"{problem} Saved changes are sent when it answers again.")
            return False
        self._handled, self._changed_at = scanned, None
        self._report_once.reset()
        return True

    def _is_overdue(self) -> bool:
        return self._changed_at is not None and self._now() >= self._changed_at + MAX_WAIT_SECONDS

    # -- from the folder -------------------------------------------------------------------------------------

    def _handle(self, scanned: Scan) -> None:
        try:
            canvas = self._parse(
                *files.read(self._directory.folder, scanned, max_bytes=self._limits.asset_bytes)
            )
        except BadInput as problem:
            self._report(problem.message)
            return
        if files.scan(self._directory.folder) != scanned and not self._is_overdue():
            raise FileChanging
        try:
            self._update(canvas)
        except RequestRefused as problem:
            if problem.name in FATAL_ERRORS:
                raise
            self._report(problem.message)
        if self._retry_at is not None:
            self._retry_at = None
            self._report("The server answers again.")

    def _parse(self, contents: Mapping[str, bytes], problems: Iterable[Problem]) -> FolderCanvas:
        """Return the canvas of the folder, with the server's version of each asset that has a problem."""
        own = {path: content for path, content in contents.items() if not is_editor_file(path)}
        reading = read_files(own, self._directory.agent_id, self._directory.canvas_id)
        assets, messages = dict(reading.canvas.assets), set[str]()
        for problem in (*problems, *reading.problems):
            below = problem.path.rstrip("/") + "/"
            if below == FOLDER:
                assets = {}
            assets |= {
                path: content
                for path, content in self._sent.assets.items()
                if path == problem.path or path.startswith(below)
            }
            messages.add(f"{problem} The canvas keeps its version.")
        for text in sorted(messages - self._problems):
            self._report(text)
        self._problems = messages
        return replace(reading.canvas, assets=assets)

    # -- to the server ---------------------------------------------------------------------------------------

    def _update(self, canvas: FolderCanvas) -> None:
        """Send all files that were saved since they were last sent."""
        saved = self._saved(canvas)
        if not saved:
            return
        if saved.is_one_asset and exists(self._client, canvas.canvas_id):
            self._push_one_by_one(canvas, saved, is_new=False)
            return
        on_server = fetch(self._client, canvas.canvas_id)
        if on_server is None:
            self._report("The canvas was deleted; it is created again.")
            self._sent, self._refused = self._empty(), {}
        self._send(on_server, canvas)

    def _saved(self, canvas: FolderCanvas) -> Difference:
        """Return the difference to what was sent, without files that were refused and not saved since."""
        stamps = self._scanned.stamps
        self._refused = {file: stamp for file, stamp in self._refused.items() if stamps.get(file) == stamp}
        for file in self._refused:
            canvas = _with_file_of(canvas, file, self._sent)
        return compare(self._sent, canvas)

    def _send(self, on_server: ServerCanvas | None, canvas: FolderCanvas) -> None:
        """Send the saved files together; if refused, each alone, so that an error affects one file."""
        saved = self._saved(canvas)
        for _ in range(MAX_ATTEMPTS):
            try:
                self._push_together(on_server, canvas, saved)
            except RequestRefused as problem:
                if problem.name in FATAL_ERRORS:
                    raise
                if problem.name != CONFLICT:
                    break
                on_server = fetch(self._client, canvas.canvas_id)
            else:
                self._sent = self._merge(self._sent, canvas, saved)
                return
        self._push_one_by_one(canvas, saved, is_new=on_server is None)

    def _push_together(self, on_server: ServerCanvas | None, canvas: FolderCanvas, saved: Difference) -> None:
        if on_server is None:
            wanted = canvas
        else:
            self._report_changes_by_users(on_server.canvas, saved)
            wanted = self._merge(on_server.canvas, canvas, saved)
        self._report_result(
            push(
                self._client,
                on_server,
                wanted,
                max_bytes=self._limits.request_bytes,
                is_accepted=self._is_accepted,
            )
        )

    def _merge(self, onto: FolderCanvas, canvas: FolderCanvas, saved: Difference) -> FolderCanvas:
        """Return a canvas with the files that the author saved, and the rest of `onto`."""
        for file in (*saved.sent, *saved.removed):
            onto = _with_file_of(onto, file, canvas)
        return onto

    def _report_changes_by_users(self, current: FolderCanvas, saved: Difference) -> None:
        changed = {
            path
            for path, content in self._sent.assets.items()
            if current.assets.get(path) != content and path not in saved.put and path not in saved.removed
        }
        for path in sorted(changed - self._kept):
            self._report(
                f"{escape_unprintable(path)} was changed on the canvas; "
                "that version is kept until you save it."
            )
        self._kept = changed

    def _push_one_by_one(self, canvas: FolderCanvas, saved: Difference, *, is_new: bool) -> None:
        if is_new:
            self._report_result(create_empty(self._client, canvas, is_accepted=self._is_accepted))
        for file in (*saved.sent, *saved.removed):
            difference = compare(self._sent, _with_file_of(self._sent, file, canvas))
            if file == SPEC and is_new and canvas.state is None:
                difference = replace(
                    difference, members={**difference.members, "state": initial_state(canvas)}
                )
            try:
                self._report_result(
                    push_file(self._client, canvas, difference, is_accepted=self._is_accepted)
                )
            except RequestRefused as problem:
                if problem.name in FATAL_ERRORS:
                    raise
                self._refused[file] = self._scanned.stamps.get(file)
                self._report(f"{_with_file(file, problem.message)} The canvas keeps its version.")
            else:
                self._sent = _with_file_of(self._sent, file, canvas)

    def _empty(self) -> FolderCanvas:
        return FolderCanvas(canvas_id=self._directory.canvas_id, agent_id=self._directory.agent_id)

    def _report_result(self, result: SyncResult | None) -> None:
        if self._is_accepted:
            accept(self._client, self._directory.canvas_id)
        if result is not None:
            self._report(result.describe())
            for warning in result.warnings:
                self._report(f"The server warns: {escape_unprintable(warning)}")


class FolderWatcher:
    """Watches all canvases in a folder, including those that are created later."""

    def __init__(
        self,
        folder: Path,
        agent_id: str | None,
        client: ApiClient,
        limits: WatchLimits,
        report: Report,
        *,
        is_accepted: bool,
    ) -> None:
        self._folder = folder
        self._agent_id = agent_id
        self._client = client
        self._limits = limits
        self._report = report
        self._report_once = _OnceReporter(report)
        self._is_accepted = is_accepted
        self._watchers: dict[Path, CanvasWatcher] = {}
        self._find_at = 0.0

    def start(self) -> list[CanvasDir]:
        """Send the canvases that exist now and return them. Raises on any problem."""
        found = files.find_canvases(self._folder, self._agent_id)
        for directory in found:
            self._add(directory)
        return found

    def poll(self) -> None:
        """Poll each canvas, and once a second search for new ones."""
        for watcher in self._watchers.values():
            watcher.poll()
        if time.monotonic() < self._find_at:
            return
        self._find_at = time.monotonic() + FIND_SECONDS
        try:
            for folder in files.find_folders(self._folder, self._agent_id):
                if folder not in self._watchers:
                    self._add(files.identify(folder, self._agent_id))
        except RequestRefused as problem:
            if problem.name in FATAL_ERRORS:
                raise
            self._report_once(problem.message)
        except (BadInput, ServerUnreachable, OSError) as problem:
            self._report_once(_describe(problem))

    def _add(self, directory: CanvasDir) -> None:
        def report(text: str) -> None:
            self._report(f"{directory.canvas_id}: {text}")

        watcher = CanvasWatcher(directory, self._client, self._limits, report, is_accepted=self._is_accepted)
        watcher.start()
        self._watchers[directory.folder] = watcher


def _with_file_of(canvas: FolderCanvas, file: str, source: FolderCanvas) -> FolderCanvas:
    """Return the canvas with the content of one file taken from another canvas."""
    if file in JSON_FILES:
        return replace(canvas, **{name: getattr(source, name) for name in JSON_FILES[file]})
    rest = {path: content for path, content in canvas.assets.items() if path != file}
    return replace(canvas, assets={**rest, file: source.assets[file]} if file in source.assets else rest)


def _with_file(file: str, message: str) -> str:
    return message if message.startswith(file) else f"{escape_unprintable(file)}: {message}"


def _describe(problem: OSError | BadInput | ServerUnreachable) -> str:
    return problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
