"""Watch canvas folders while their author edits them: each save is in the open canvas within a second.

Owns when a folder counts as saved. Editors write by renaming, or truncate a file and fill it, and a build
writes many files at once; so a folder is read when two scans in a row are equal, and only as a consistent set
of files. A file that is invalid or refused is reported once and sent again after its next save: the canvas
keeps the last good version, and all other files are synchronised.

Users work on the canvas at the same time. Its state is replaced only when the state file of the folder was
changed. Assets that were never in the folder are kept, and so are assets that users changed after the author
last saved them.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from easel.canvas_folder import files
from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.canvas_folder.files import CanvasDir, FileChanging, FileStamp, Scan, is_editor_file
from easel.canvas_folder.parts import JSON_PARTS, defines, part, with_all, with_part, without_assets
from easel.canvas_folder.sync import (
    CONFLICT,
    MAX_ATTEMPTS,
    NOT_FOUND,
    SyncResult,
    accept,
    changed_on_server,
    check_agent,
    fetch,
    plan_steps,
    push,
    replaces_all_assets,
)
from easel.core.canvas.assets import FOLDER
from easel.core.canvas.folder import (
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
MAX_COMPARED_ASSETS = 40  # with more unchanged assets the changed files are sent one by one
FATAL_ERRORS = frozenset({"NOT_SIGNED_IN", "FORBIDDEN"})  # no later save can succeed

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
        self._sent = self._empty()  # the content of the folder that the server has
        self._known_revision: int | None = None  # the revision at which the server had the assets of `_sent`
        self._kept: Sequence[str] = ()  # assets that users have changed since that revision
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
        own = {path: content for path, content in current.assets.items() if not is_editor_file(path)}
        others = [path for path in current.assets if is_editor_file(path)]
        self._send(replace(current, assets=own), replace(canvas, state=None), others)
        self._sent = replace(self._sent, state=canvas.state)

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
        changes = self._changes(canvas)
        if changes == replace(self._empty(), assets=self._sent.assets):
            return
        for remaining in reversed(range(MAX_ATTEMPTS)):
            try:
                view = self._client.call("canvas.get", canvasId=canvas.canvas_id)
            except RequestRefused as problem:
                if problem.name != NOT_FOUND:
                    raise
                self._report("The canvas was deleted; it is created again.")
                self._sent, self._refused = self._empty(), {}
                self._send(None, canvas)
                return
            try:
                self._send_changes(view, changes, is_last=not remaining)
            except RequestRefused as problem:
                if problem.name != CONFLICT:
                    raise
            else:
                return

    def _send_changes(self, view: Mapping[str, Any], changes: FolderCanvas, *, is_last: bool) -> None:
        """Send changes to the canvas of this view. Unless `is_last`, a conflict raises `RequestRefused`."""
        own = {path: content for path, content in self._sent.assets.items() if path in view["assets"]}
        current = replace(
            self._empty(),
            title=view["descriptor"]["title"],
            owner_session_key=view["descriptor"]["ownerSessionKey"],
            spec=view["spec"],
            state=view["state"],
            assets=own,
        )
        others = [path for path in view["assets"] if path not in own and path not in changes.assets]
        kept = self._changed_by_users(view["revision"], current, changes, others)
        self._send(
            without_assets(current, kept),
            without_assets(changes, kept),
            [*others, *kept],
            revision=view["revision"],
            is_last=is_last,
        )
        self._sent = replace(self._sent, assets={**{path: own[path] for path in kept}, **self._sent.assets})

    def _changed_by_users(
        self, revision: int, current: FolderCanvas, changes: FolderCanvas, others: Sequence[str]
    ) -> Sequence[str]:
        """Return assets that users may have changed and that a call with all assets would overwrite."""
        steps = plan_steps(current, changes, max_bytes=self._limits.request_bytes, others=others)
        if revision == self._known_revision or not any(map(replaces_all_assets, steps)):
            return ()
        unchanged = {
            path: content for path, content in current.assets.items() if changes.assets.get(path) == content
        }
        if len(unchanged) > MAX_COMPARED_ASSETS:
            return list(unchanged)
        kept = changed_on_server(self._client, current.canvas_id, unchanged)
        for path in kept:
            if path not in self._kept:
                self._report(
                    f"{escape_unprintable(path)} was changed on the canvas; "
                    "that version is kept until you save it."
                )
        self._kept, self._known_revision = kept, None if kept else revision
        return kept

    def _changes(self, canvas: FolderCanvas) -> FolderCanvas:
        """Return the canvas without the parts that were sent already, or refused and not saved since."""
        stamps = self._scanned.stamps
        self._refused = {file: stamp for file, stamp in self._refused.items() if stamps.get(file) == stamp}
        changes = canvas
        for file in JSON_PARTS:
            if file in self._refused or is_identical_json(part(canvas, file), part(self._sent, file)):
                changes = with_part(changes, file, self._empty())
        for path in canvas.assets:
            if path in self._refused:
                changes = with_part(changes, path, self._sent)
        return changes

    def _send(
        self,
        current: FolderCanvas | None,
        changes: FolderCanvas,
        others: Sequence[str] = (),
        *,
        revision: int | None = None,
        is_last: bool = True,
    ) -> None:
        """Send all changes together; if refused, each file separately, so that an error affects one file."""
        try:
            self._report_result(self._push(current, changes, others, revision))
        except RequestRefused as problem:
            if problem.name in FATAL_ERRORS or (problem.name == CONFLICT and not is_last):
                raise
        else:
            self._sent = with_all(self._sent, changes)
            return
        json_files = [file for file in JSON_PARTS if defines(changes, file)]
        if current is None:
            current = self._create(changes, json_files)
            json_files = [file for file in json_files if not defines(current, file)]
        removed = [path for path in current.assets if path not in changes.assets]
        for file in [*json_files, *removed, *changes.assets]:
            one_file = with_part(replace(self._empty(), assets=current.assets), file, changes)
            try:
                self._report_result(self._push(current, one_file, others))
            except RequestRefused as problem:
                if problem.name in FATAL_ERRORS:
                    raise
                self._refused[file] = self._scanned.stamps.get(file)
                self._report(f"{_with_file(file, problem.message)} The canvas keeps its version.")
                continue
            self._sent, current = with_part(self._sent, file, changes), with_all(current, one_file)

    def _push(
        self,
        current: FolderCanvas | None,
        changes: FolderCanvas,
        others: Sequence[str] = (),
        revision: int | None = None,
    ) -> SyncResult | None:
        known, self._known_revision = self._known_revision, None
        result = push(
            self._client,
            current,
            changes,
            max_bytes=self._limits.request_bytes,
            others=others,
            is_accepted=self._is_accepted,
            revision=revision,
        )
        new_revision = known if result is None else result.revision
        if self._is_accepted:
            before, after = accept(self._client, changes.canvas_id)
            new_revision = after if before == new_revision else None
        # The revision is known only after exactly one call that raised it by one: nothing else was changed.
        is_only_change = result is None or (
            result.call_count == 1 and revision is not None and result.revision == revision + 1
        )
        if known == revision and is_only_change:
            self._known_revision = new_revision
        return result

    def _create(self, changes: FolderCanvas, json_files: Sequence[str]) -> FolderCanvas:
        """Create the canvas with as many JSON files as the server accepts, and return it without assets.

        A new canvas gets the initial state of its spec only if both are sent in the first call.
        """
        for accepted in (
            subset for count in range(len(json_files), -1, -1) for subset in combinations(json_files, count)
        ):
            canvas = self._empty()
            for file in accepted:
                canvas = with_part(canvas, file, changes)
            try:
                self._report_result(self._push(None, canvas))
            except RequestRefused as problem:
                if problem.name in FATAL_ERRORS or not accepted:
                    raise
            else:
                self._sent = with_all(self._sent, canvas)
                return canvas
        raise AssertionError("the attempt without files returns or raises")

    def _empty(self) -> FolderCanvas:
        return FolderCanvas(canvas_id=self._directory.canvas_id, agent_id=self._directory.agent_id)

    def _report_result(self, result: SyncResult | None) -> None:
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


def _with_file(file: str, message: str) -> str:
    return message if message.startswith(file) else f"{escape_unprintable(file)}: {message}"


def _describe(problem: OSError | BadInput | ServerUnreachable) -> str:
    return problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
