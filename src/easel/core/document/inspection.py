"""The lines that the holder of a lease has been shown: an edit must be of lines that were. RS-47

Ranges are sorted, apart from each other, and hold for one revision: after a patch they start empty (CT-31).
Does not know leases or how lines are shown.
"""

from collections.abc import Iterable, Sequence

from easel.core.document.document import LineRange
from easel.core.document.rejection import Reason, Rejection

MAX_NAMED_RANGES = 5


def add_inspected(inspected: Sequence[LineRange], shown: Iterable[LineRange]) -> list[LineRange]:
    """Return the ranges with those just shown. Ranges that touch are merged; empty ones are ignored."""
    merged: list[LineRange] = []
    for first, last in sorted([*inspected, *shown]):
        if first > last:
            continue
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def find_uninspected(inspected: Sequence[LineRange], wanted: LineRange) -> list[LineRange]:
    """Return the parts of a range that were not shown."""
    first, last = wanted
    missing: list[LineRange] = []
    for shown_first, shown_last in inspected:
        if shown_last < first:
            continue
        if shown_first > last:
            break
        if shown_first > first:
            missing.append((first, shown_first - 1))
        first = shown_last + 1
    if first <= last:
        missing.append((first, last))
    return missing


def check_inspected(
    inspected: Sequence[LineRange], old_ranges: Sequence[LineRange], *, line_count: int, revision_id: str
) -> None:
    """Raise `PatchRejected` (`not_inspected`) unless every old line of every hunk was shown. RS-47

    `old_ranges` are those of `Applied`. An insertion has no old lines: the line before it or the line
    after it must have been shown. In an empty document there is nothing to show.
    """
    missing: list[tuple[int, LineRange]] = []
    for hunk, (first, last) in enumerate(old_ranges, 1):
        if first <= last:
            missing += [(hunk, part) for part in find_uninspected(inspected, (first, last))]
        else:
            neighbours = [line for line in (last, first) if 1 <= line <= line_count]
            if neighbours and all(find_uninspected(inspected, (line, line)) for line in neighbours):
                missing.append((hunk, (neighbours[0], neighbours[-1])))
    if not missing:
        return
    named = "; ".join(f"{first} to {last}" for _, (first, last) in missing[:MAX_NAMED_RANGES])
    rejection = Rejection(
        Reason.NOT_INSPECTED,
        f"Lines {named}{' and more' if len(missing) > MAX_NAMED_RANGES else ''} were not read at this "
        "revision under this lease.",
        hunk=missing[0][0],
        advice="Read these lines with canvas_read_lines or canvas_grep, then send the patch again.",
        not_inspected=[list(part) for _, part in missing[:MAX_NAMED_RANGES]],
    )
    raise rejection.to_error(revision_id)
