"""What a tool says while its action runs, on its way into the canvas's log: gathered for a moment, and never more than so much of it.

Owns what of it is told and where it is cut. A line that has only begun waits for its rest, if there are whole lines before it, until it is
looked for again. What has to be hidden is hidden across looks, too: the next words are looked at together with the line that they go on with, and
with a key that has begun. Base64 over 2 KB is named and not shown. Pure: whoever calls brings the time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from easel.core.audit.redaction import unfinished
from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import Execution, ExecutionStatus, Transition
from easel.core.run.deltas import DELTA_BYTES, Flow
from easel.core.stream.envelope import Envelope

GATHER_SECONDS = (
    0.25  # a person who watches sees it at once, and a log is written to four times a second at most
)
MISSING = "\n… some of it could not be shown live …\n"


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of it; with `is_cut` it is the last one, and tells that there was more."""

    text: str
    is_cut: bool = False


class LiveText:
    """What one execution says."""

    def __init__(self, most_bytes: int, redact: Callable[[str], str] = str) -> None:
        self._most = self._left = most_bytes
        self._redact = redact
        self._heard: list[str] = []
        self._before = ""  # what the next words are told after
        self._unfinished = ""  # what the next words are looked at with
        self._flow = Flow()
        self._is_cut = self._is_over = not most_bytes  # there is more than is told; and that was said

    def hear(self, text: str) -> None:
        if self._is_cut or not text:
            return
        part = _beginning(text, self._left)
        self._left -= _size(part)
        self._is_cut = len(part) < len(text)
        if part:
            self._heard.append(part)

    def lost(self) -> None:
        """What was told last did not arrive, or nobody knows whether it did: it is not told twice."""
        self._before = MISSING

    @property
    def has_more(self) -> bool:
        return bool(self._heard) or self._flow.is_holding or (self._is_cut and not self._is_over)

    def tell(self, *, is_end: bool = False) -> list[Said]:
        """All that there is; but for the end, without a line that has only begun and Base64 that may go on."""
        heard = "".join(self._heard)
        is_last = is_end or self._is_cut
        end = len(heard) if is_last else max(heard.rfind("\n"), heard.rfind("\r")) + 1 or len(heard)
        self._heard = [heard[end:]] if end < len(heard) else []
        before, self._before = (self._before, "") if heard else ("", self._before)
        told = self._flow.tell(before + self._hidden(heard[:end]), is_end=is_last or not heard)
        said = [Said(_light(piece)) for piece in told]
        if self._is_cut and not self._is_over:
            self._is_over = True
            said.append(Said(f"\n… over {self._most} bytes: the rest is not shown live …\n", is_cut=True))
        return said

    def _hidden(self, text: str) -> str:
        """Of these words what may be shown, after what was shown before them."""
        snapshot = self._unfinished + text
        shown = self._redact(snapshot).removeprefix(self._redact(self._unfinished))
        self._unfinished = unfinished(snapshot)
        return shown


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _beginning(text: str, most_bytes: int) -> str:
    """As many whole characters as fit."""
    if len(text) * 4 <= most_bytes:
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", "ignore")


def _light(piece: str) -> str:
    """Plain pieces are short already; what is longer is Base64, which has no place in a log, and an artifact is too much for noise."""
    return piece if len(piece) <= DELTA_BYTES else f"[{len(piece)} characters of Base64 are not shown live]"


def events_of(execution: Execution, revision: int, said: Sequence[Said]) -> Iterator[Envelope]:
    events = CanvasEvents(
        execution.canvas_id,
        agent_id=execution.user_id,
        event_id=execution.event_id,
        node_id=execution.action_id,
    )
    for one in said:
        cut = {"cut": True} if one.is_cut else {}
        yield events.action(
            "output",
            revision,
            {"actionId": execution.action_id, "eventId": execution.event_id, "text": one.text, **cut},
        )


def saying(execution: Execution, said: Sequence[Said]) -> Callable[[CanvasSnapshot], Change]:
    """As long as it runs, and is run by whom it says: nothing is told after its end. The canvas itself stays as it is."""
    step = Transition(replace(execution, status=ExecutionStatus.RUNNING), from_status=ExecutionStatus.RUNNING)
    return lambda snapshot: Change(
        events=list(events_of(execution, snapshot.canvas.revision, said)), is_mutation=False, transition=step
    )


def after_saying(
    execution: Execution, said: Sequence[Said], decide: Callable[[CanvasSnapshot], Change]
) -> Callable[[CanvasSnapshot], Change]:
    """Its last words and its end, in one."""

    def both(snapshot: CanvasSnapshot) -> Change:
        change = decide(snapshot)
        return replace(change, events=[*events_of(execution, snapshot.canvas.revision, said), *change.events])

    return both if said else decide
