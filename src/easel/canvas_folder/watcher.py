"""A canvas's folder, served while its author edits it: each save is in the open canvas within a second.

Owns when a folder counts as saved. Editors write by renaming, or empty a file and fill it, and a build writes many at once; so a
folder is taken when two looks in a row found it the same, and only as a whole of that moment. What cannot be understood or is refused is
told once and waits for its next save: the canvas keeps the last good one, and everything else goes on.

People work on the canvas meanwhile. Their state is theirs: it is replaced only when the folder's own was changed. So are assets that
never were in the folder, and those that they changed and the author did not save since.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from easel.canvas_folder import files
from easel.canvas_folder.api_client import Refused, Server, ServerUnreachable
from easel.canvas_folder.files import CanvasDir, Mark, Moving, Scan
from easel.canvas_folder.parts import JSON_PARTS, part, speaks, with_all, with_part, without
from easel.canvas_folder.sync import (
    CONFLICT,
    MAX_ATTEMPTS,
    NOT_FOUND,
    SyncResult,
    accept,
    carry,
    changed_there,
    checked_agent,
    held,
    is_all,
    steps,
)
from easel.core.canvas.assets import FOLDER
from easel.core.canvas.folder import STATE, FolderCanvas, Problem, is_same, plain, read
from easel.errors import BadInput

LOOK_SECONDS = 0.2
MAX_WAIT_SECONDS = 2.0  # for a folder that is never quiet; then it is taken as it is
RETRY_SECONDS = 1.0
FIND_SECONDS = 1.0  # how often to look for canvases that are new in the folder
SHOWN_FILES = 4
MAX_COMPARED = (
    40  # assets that are looked at before all are sent at once; with more, what was saved goes file by file
)
ENDS_IT = frozenset({"NOT_SIGNED_IN", "FORBIDDEN"})  # no save will change that
LEFTOVERS = ("~", "___jb_tmp___", "___jb_old___")  # of editors, beside the file that they save


@dataclass(frozen=True, slots=True)
class WatchLimits:
    asset_bytes: int
    request_bytes: int


class Watch:
    """One canvas's folder. `once` looks at it; whoever calls that again and again serves it."""

    def __init__(
        self,
        place: CanvasDir,
        server: Server,
        limits: WatchLimits,
        tell: Callable[[str], None],
        *,
        is_accepted: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._is_accepted = (
            is_accepted  # whoever watches stands for all that is saved there, whoever saves it
        )
        self._server = server
        self._limits = limits
        self._tell = tell
        self._now = now
        self._sent = self._nothing()  # what the server has of this folder
        self._known: int | None = None  # the revision at which its assets were those
        self._kept: Sequence[str] = ()  # of its assets, those that others have changed since
        self._refused: dict[str, Mark | None] = {}  # by file, as it was when the server did not take it
        self._dealt: Scan | None = None  # with what was found then
        self._seen = Scan()
        self._changed_at: float | None = None
        self._retry_at: float | None = None
        self._problems: set[str] = set()
        self._said = ""

    def start(self) -> None:
        """The folder becomes the canvas, but for the state of one that is there already."""
        self._seen = files.scan(self._place.folder)
        canvas = self._read(*files.read_settled(self._place.folder, most_bytes=self._limits.asset_bytes))
        there = held(self._server, canvas.canvas_id)
        if there is None:
            self._send(None, canvas)
            return
        checked_agent(there, canvas.agent_id)
        if canvas.state is not None and not is_same(canvas.state, there.canvas.state):
            self._tell(
                f"{STATE} is not what the canvas has, and people's work stays as it is; `easel canvas import` would replace it."
            )
        mine = {path: content for path, content in there.canvas.assets.items() if not is_leftover(path)}
        others = [path for path in there.canvas.assets if is_leftover(path)]
        self._send(replace(there.canvas, assets=mine), replace(canvas, state=None), others)
        self._sent = replace(self._sent, state=canvas.state)

    def once(self) -> bool:
        """Whether the folder was saved and is at rest, so that it was looked into."""
        try:
            seen = files.scan(self._place.folder)
        except (OSError, BadInput) as problem:
            self._say_once(f"The folder cannot be read ({_said(problem)}); the canvas stays as it is.")
            return False
        is_quiet, self._seen = seen == self._seen, seen
        if seen == self._dealt:
            self._changed_at = None
            return False
        now = self._now()
        self._changed_at = now if self._changed_at is None else self._changed_at
        if (not is_quiet and not self._is_overdue()) or (self._retry_at is not None and now < self._retry_at):
            return False
        try:
            self._deal(seen)
        except (Moving, OSError):
            return False  # it is being written to: the next look will see more
        except ServerUnreachable as problem:
            self._retry_at = now + RETRY_SECONDS
            self._say_once(f"{problem} What is saved is sent when it answers.")
            return False
        self._dealt, self._changed_at, self._said = seen, None, ""
        return True

    def _is_overdue(self) -> bool:
        return self._changed_at is not None and self._now() >= self._changed_at + MAX_WAIT_SECONDS

    # -- from the folder -------------------------------------------------------------------------------------------

    def _deal(self, seen: Scan) -> None:
        try:
            canvas = self._read(*files.read(self._place.folder, seen, most_bytes=self._limits.asset_bytes))
        except BadInput as problem:
            self._tell(problem.message)
            return
        if files.scan(self._place.folder) != seen and not self._is_overdue():
            raise Moving
        try:
            self._carry(canvas)
        except Refused as problem:
            if problem.name in ENDS_IT:
                raise
            self._tell(problem.message)
        if self._retry_at is not None:
            self._retry_at = None
            self._tell("The server answers again.")

    def _read(self, found: Mapping[str, bytes], problems: Iterable[Problem]) -> FolderCanvas:
        """What the folder says, with what the server has in the place of assets that cannot be taken."""
        ours = {path: content for path, content in found.items() if not is_leftover(path)}
        reading = read(ours, self._place.agent_id, self._place.canvas_id)
        assets, told = dict(reading.canvas.assets), set[str]()
        for problem in (*problems, *reading.problems):
            below = problem.path.rstrip("/") + "/"
            if below == FOLDER:
                assets = {}
            assets |= {
                path: content
                for path, content in self._sent.assets.items()
                if path == problem.path or path.startswith(below)
            }
            told.add(f"{problem} The canvas keeps what it has.")
        for text in sorted(told - self._problems):
            self._tell(text)
        self._problems = told
        return replace(reading.canvas, assets=assets)

    # -- to the server ---------------------------------------------------------------------------------------------

    def _carry(self, canvas: FolderCanvas) -> None:
        """What was saved since it was last sent goes to the canvas as it is there now."""
        news = self._news(canvas)
        if news == replace(self._nothing(), assets=self._sent.assets):
            return
        for left in reversed(range(MAX_ATTEMPTS)):
            try:
                view = self._server.call("canvas.get", canvasId=canvas.canvas_id)
            except Refused as problem:
                if problem.name != NOT_FOUND:
                    raise
                self._tell("The canvas was deleted; it is made anew.")
                self._sent, self._refused = self._nothing(), {}
                self._send(None, canvas)
                return
            try:
                self._update(view, news, is_last=not left)
            except Refused as problem:
                if problem.name != CONFLICT:
                    raise
            else:
                return

    def _update(self, view: Mapping[str, Any], news: FolderCanvas, *, is_last: bool) -> None:
        """Raises `Refused` with CONFLICT where somebody else was faster, unless it is the last try."""
        mine = {path: content for path, content in self._sent.assets.items() if path in view["assets"]}
        there = replace(
            self._nothing(),
            title=view["descriptor"]["title"],
            owner_session_key=view["descriptor"]["ownerSessionKey"],
            spec=view["spec"],
            state=view["state"],
            assets=mine,
        )
        others = [path for path in view["assets"] if path not in mine and path not in news.assets]
        kept = self._of_others(view["revision"], there, news, others)
        self._send(
            without(there, kept),
            without(news, kept),
            [*others, *kept],
            revision=view["revision"],
            is_last=is_last,
        )
        self._sent = replace(self._sent, assets={**{path: mine[path] for path in kept}, **self._sent.assets})

    def _of_others(
        self, revision: int, there: FolderCanvas, news: FolderCanvas, others: Sequence[str]
    ) -> Sequence[str]:
        """Assets that were not saved since they were sent, and that sending all at once would take back from whoever changed them."""
        planned = steps(there, news, most_bytes=self._limits.request_bytes, others=others)
        if revision == self._known or not any(map(is_all, planned)):
            return ()
        same = {path: content for path, content in there.assets.items() if news.assets.get(path) == content}
        if len(same) > MAX_COMPARED:
            return list(same)
        kept = changed_there(self._server, there.canvas_id, same)
        for path in kept:
            if path not in self._kept:
                self._tell(
                    f"{plain(path)} was changed on the canvas by others and stays so until you save it."
                )
        self._kept, self._known = kept, None if kept else revision
        return kept

    def _news(self, canvas: FolderCanvas) -> FolderCanvas:
        """Without what is as it was sent, or was refused and not saved since."""
        marks = self._seen.marks
        self._refused = {file: mark for file, mark in self._refused.items() if marks.get(file) == mark}
        news = canvas
        for file in JSON_PARTS:
            if file in self._refused or is_same(part(canvas, file), part(self._sent, file)):
                news = with_part(news, file, self._nothing())
        for path in canvas.assets:
            if path in self._refused:
                news = with_part(news, path, self._sent)
        return news

    def _send(
        self,
        there: FolderCanvas | None,
        news: FolderCanvas,
        others: Sequence[str] = (),
        *,
        revision: int | None = None,
        is_last: bool = True,
    ) -> None:
        """All of it at once; if that is refused, each file by itself, so that one that is wrong holds up no other."""
        try:
            self._say(self._carried(there, news, others, revision))
        except Refused as problem:
            if problem.name in ENDS_IT or (problem.name == CONFLICT and not is_last):
                raise
        else:
            self._sent = with_all(self._sent, news)
            return
        said = [file for file in JSON_PARTS if speaks(news, file)]
        if there is None:
            there = self._made(news, said)
            said = [file for file in said if not speaks(there, file)]
        for file in [*said, *(path for path in there.assets if path not in news.assets), *news.assets]:
            only = with_part(replace(self._nothing(), assets=there.assets), file, news)
            try:
                self._say(self._carried(there, only, others))
            except Refused as problem:
                if problem.name in ENDS_IT:
                    raise
                self._refused[file] = self._seen.marks.get(file)
                self._tell(f"{_about(file, problem.message)} The canvas keeps what it has.")
                continue
            self._sent, there = with_part(self._sent, file, news), with_all(there, only)

    def _carried(
        self,
        there: FolderCanvas | None,
        news: FolderCanvas,
        others: Sequence[str] = (),
        revision: int | None = None,
    ) -> SyncResult | None:
        before, self._known = self._known, None
        carried = carry(
            self._server,
            there,
            news,
            most_bytes=self._limits.request_bytes,
            others=others,
            is_accepted=self._is_accepted,
            revision=revision,
        )
        known = before if carried is None else carried.revision
        if self._is_accepted:
            at, after = accept(self._server, news.canvas_id)
            known = after if at == known else None
        # Nobody came in between. Only of one call that is known: one that changes nothing would hide the change of somebody else.
        if before == revision and (
            carried is None
            or (carried.calls == 1 and revision is not None and carried.revision == revision + 1)
        ):
            self._known = known
        return carried

    def _made(self, news: FolderCanvas, said: Sequence[str]) -> FolderCanvas:
        """A new canvas without assets, of all that is taken together: it begins with the state that its spec declares, and only then."""
        for some in (files_ for most in range(len(said), -1, -1) for files_ in combinations(said, most)):
            made = self._nothing()
            for file in some:
                made = with_part(made, file, news)
            try:
                self._say(self._carried(None, made))
            except Refused as problem:
                if problem.name in ENDS_IT or not some:
                    raise
            else:
                self._sent = with_all(self._sent, made)
                return made
        raise AssertionError("the last try, with no file at all, ends it")

    def _nothing(self) -> FolderCanvas:
        return FolderCanvas(canvas_id=self._place.canvas_id, agent_id=self._place.agent_id)

    # -- in words --------------------------------------------------------------------------------------------------

    def _say(self, carried: SyncResult | None) -> None:
        if carried is not None:
            self._tell(in_words(carried))
            for warning in carried.warnings:
                self._tell(f"The server warns: {plain(warning)}")

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell(text)


class FolderWatcher:
    """All canvases in a folder, those that are made in it later too."""

    def __init__(
        self,
        folder: Path,
        agent_id: str | None,
        server: Server,
        limits: WatchLimits,
        tell: Callable[[str], None],
        *,
        is_accepted: bool,
    ) -> None:
        self._folder = folder
        self._agent_id = agent_id
        self._server = server
        self._limits = limits
        self._tell = tell
        self._is_accepted = is_accepted
        self._watches: dict[Path, Watch] = {}
        self._find_at = 0.0
        self._said = ""

    def start(self) -> list[CanvasDir]:
        """Those that are there now; what is wrong with one of them is raised."""
        found = files.find(self._folder, self._agent_id)
        for place in found:
            self._add(place)
        return found

    def once(self) -> None:
        for watch in self._watches.values():
            watch.once()
        if time.monotonic() < self._find_at:
            return
        self._find_at = time.monotonic() + FIND_SECONDS
        try:
            for one in files.folders(self._folder, self._agent_id):
                if one not in self._watches:
                    self._add(files.placed(one, self._agent_id))
        except Refused as problem:
            if problem.name in ENDS_IT:
                raise
            self._say_once(problem.message)
        except (BadInput, ServerUnreachable, OSError) as problem:
            self._say_once(_said(problem))

    def _add(self, place: CanvasDir) -> None:
        def tell(text: str) -> None:
            self._tell(f"{place.canvas_id}: {text}")

        watch = Watch(place, self._server, self._limits, tell, is_accepted=self._is_accepted)
        watch.start()
        self._watches[place.folder] = watch

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell(text)


def is_leftover(path: str) -> bool:
    """What an editor leaves beside a file is neither sent nor, where a canvas has it, removed."""
    return path.startswith(FOLDER) and path.endswith(LEFTOVERS)


def in_words(carried: SyncResult) -> str:
    if carried.is_new:
        return f"made of {_few(carried.sent) or 'nothing yet'}; revision {carried.revision}"
    done = [
        f"{_few(paths)} {what}"
        for paths, what in ((carried.sent, "saved"), (carried.removed, "removed"))
        if paths
    ]
    return f"{', '.join(done)}; revision {carried.revision}"


def _few(paths: Sequence[str]) -> str:
    shown = ", ".join(plain(path) for path in paths[:SHOWN_FILES])
    return shown + (f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else "")


def _about(file: str, message: str) -> str:
    return message if message.startswith(file) else f"{plain(file)}: {message}"


def _said(problem: OSError | BadInput | ServerUnreachable) -> str:
    return problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
