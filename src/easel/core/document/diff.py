"""The unified diff of two texts, for hidden updates and for people. RS-23

Owns finding the changed lines within a bounded time: equal ends are skipped, lines that occur once in both
texts are anchors, and between two anchors the shortest edit is searched up to a limit of steps. Above it the
whole gap becomes one change, which is longer but still right. Does not know documents or messages.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from easel.core.document.hunks import format_header
from easel.core.document.lines import NO_NEWLINE, is_terminated, split_lines

CONTEXT_LINES = 3
MAX_EDITS = 400  # of one gap between anchors
MAX_STEPS = 200_000  # of all searches together

Change = tuple[int, int, int, int]  # old lines from, to; new lines from, to: indexes, ends exclusive
_BLOCK_LINES = 256


def make_diff(old: str, new: str) -> str:
    """Return the hunks that make `new` of `old`, without file headers; empty if the texts are equal."""
    if old == new:
        return ""
    old_lines, new_lines = _marked_lines(old), _marked_lines(new)
    parts: list[str] = []
    for group in _group(_find_changes(old_lines, new_lines)):
        _append_hunk(parts, group, old_lines, new_lines)
    return "\n".join(parts) + "\n"


def _marked_lines(text: str) -> list[str]:
    """Return the lines. A last line without newline has the marker of a diff, so that it is another line."""
    lines = split_lines(text)
    if not is_terminated(text):
        lines[-1] += f"\n{NO_NEWLINE}"
    return lines


def _group(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield the changes of each hunk: those whose context lines touch."""
    group: list[Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _append_hunk(parts: list[str], group: Sequence[Change], old: Sequence[str], new: Sequence[str]) -> None:
    first, last = group[0], group[-1]
    before = min(CONTEXT_LINES, first[0])
    after = min(CONTEXT_LINES, len(old) - last[1])
    old_start, new_start = first[0] - before, first[2] - before
    old_count, new_count = last[1] + after - old_start, last[3] + after - new_start
    parts.append(format_header(old_start, old_count, new_start, new_count))
    at = old_start
    for old_from, old_to, new_from, new_to in group:
        parts += [f" {line}" for line in old[at:old_from]]
        parts += [f"-{line}" for line in old[old_from:old_to]]
        parts += [f"+{line}" for line in new[new_from:new_to]]
        at = old_to
    parts += [f" {line}" for line in old[at : last[1] + after]]


def _find_changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    start = _common_prefix(old, new)
    end = _common_prefix(old[start:][::-1], new[start:][::-1])
    gaps: list[Change] = []
    at_old, at_new = start, start
    for old_index, new_index in _anchors(old, new, start, end):
        if at_old < old_index or at_new < new_index:
            gaps.append((at_old, old_index, at_new, new_index))
        at_old, at_new = old_index + 1, new_index + 1
    gaps.append((at_old, len(old) - end, at_new, len(new) - end))
    budget = MAX_STEPS
    changes: list[Change] = []
    for gap in gaps:
        found, steps = _search_gap(old, new, gap, budget)
        budget -= steps
        changes += found
    return _join_touching(changes)


def _join_touching(changes: Sequence[Change]) -> list[Change]:
    joined: list[Change] = []
    for change in changes:
        if joined and joined[-1][1] == change[0] and joined[-1][3] == change[2]:
            joined[-1] = (joined[-1][0], change[1], joined[-1][2], change[3])
        else:
            joined.append(change)
    return joined


def _common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    limit, at = min(len(old), len(new)), 0
    while at < limit and old[at : at + _BLOCK_LINES] == new[at : at + _BLOCK_LINES]:
        at += _BLOCK_LINES
    at = min(at, limit)
    while at < limit and old[at] == new[at]:
        at += 1
    return at


def _anchors(old: Sequence[str], new: Sequence[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the longest ascending pairs of lines that occur once in each text."""
    old_places = _unique_places(old, start, len(old) - end)
    new_places = _unique_places(new, start, len(new) - end)
    pairs = [(at, new_places[line]) for line, at in old_places.items() if line in new_places]
    tails: list[int] = []  # the least last new index of an ascending run of each length
    tail_pairs: list[int] = []
    previous: list[int] = []
    for number, (_, new_index) in enumerate(pairs):
        length = bisect_left(tails, new_index)
        previous.append(tail_pairs[length - 1] if length else -1)
        tails[length : length + 1] = [new_index]
        tail_pairs[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    at = tail_pairs[-1] if tail_pairs else -1
    while at >= 0:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


def _unique_places(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    """Return the index of each line that occurs once, in order."""
    counts = Counter(lines[start:end])
    return {line: at for at, line in enumerate(lines[start:end], start) if counts[line] == 1}


def _search_gap(old: Sequence[str], new: Sequence[str], gap: Change, budget: int) -> tuple[list[Change], int]:
    """Return the changes between two anchors, and the steps that it took to find them."""
    old_from, old_to, new_from, new_to = gap
    a, b = old[old_from:old_to], new[new_from:new_to]
    prefix = _common_prefix(a, b)
    suffix = _common_prefix(a[prefix:][::-1], b[prefix:][::-1])
    a, b = a[prefix : len(a) - suffix], b[prefix : len(b) - suffix]
    old_from, new_from = old_from + prefix, new_from + prefix
    if not a and not b:
        return [], 0
    whole = [(old_from, old_from + len(a), new_from, new_from + len(b))]
    if not a or not b:
        return whole, 0
    found, steps = _shortest_edit(a, b, budget)
    if found is None:
        return whole, steps
    return [(old_from + i, old_from + j, new_from + k, new_from + m) for i, j, k, m in found], steps


def _shortest_edit(a: Sequence[str], b: Sequence[str], budget: int) -> tuple[list[Change] | None, int]:
    """Return the shortest edit of `a` to `b` by Myers' greedy search, or None above the limits."""
    n, m, steps = len(a), len(b), 0
    reach = {1: 0}  # per diagonal: the furthest index in `a`
    trace: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_EDITS) + 1):
        trace.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            began = x
            while x < n and x - diagonal < m and x >= 0 and a[x] == b[x - diagonal]:
                x += 1
            reach[diagonal] = x
            steps += x - began + 1
            if x >= n and x - diagonal >= m:
                return _walk_back(trace, n, m), steps
        if steps > budget:
            break
    return None, steps


def _walk_back(trace: Sequence[dict[int, int]], n: int, m: int) -> list[Change]:
    """Return the changes on the path that the search found."""
    changes: list[Change] = []
    x, y = n, m
    for edits in range(len(trace) - 1, 0, -1):
        reach, diagonal = trace[edits], x - y
        down = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        x = reach[before]
        y = x - before
        changes.append((x, x, y, y + 1) if down else (x, x + 1, y, y))
    return _join_touching(changes[::-1])
