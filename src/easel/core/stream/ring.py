"""What the bell can say. A ring only saves waiting: whoever hears it looks into the log, and whoever does not will poll."""

from dataclasses import dataclass

from easel.ids import RunId


@dataclass(frozen=True, slots=True)
class RunGrew:
    run_id: RunId
    seq: int


@dataclass(frozen=True, slots=True)
class RunReady:
    """A run can be claimed; `anywhere` when its place is not near the end of the queue."""

    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    run_id: RunId


Ring = RunGrew | RunReady | CancelAsked


def to_text(ring: Ring) -> str:
    match ring:
        case RunGrew(run_id, seq):
            return f"g{seq}.{run_id}"
        case RunReady(anywhere):
            return "a" if anywhere else "q"
        case CancelAsked(run_id):
            return f"c{run_id}"


def from_text(text: str) -> Ring | None:
    """None for what a newer instance may say and we do not know."""
    kind, rest = text[:1], text[1:]
    if kind == "g":
        seq, _, run_id = rest.partition(".")
        return RunGrew(RunId(run_id), int(seq)) if seq.isdigit() else None
    if kind in ("q", "a"):
        return RunReady(kind == "a")
    if kind == "c":
        return CancelAsked(RunId(rest))
    return None
