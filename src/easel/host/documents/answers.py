"""The answers of the document tools: what a call computes on one revision, and how success and failure look.

Owns the form of every answer. Computing is pure and may be done in a thread. Does not know leases or stores.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from easel.core.document.document import Document, LineRange, revision_of
from easel.core.document.inspection import add_inspected, check_inspected
from easel.core.document.lines import clamp, count_lines, format_numbered, shorten, split_lines
from easel.core.document.list_items import find_item
from easel.core.document.patch import apply_patch
from easel.core.document.search import MAX_REGEX_SECONDS, MAX_SHOWN_WIDTH, grep
from easel.core.document.sections import Outline, Section
from easel.core.run.run import Claim
from easel.core.stream.json_text import to_json
from easel.errors import BadInput, HostError, PatchRejected, TooLarge

Args = Mapping[str, Any]

NOT_READ = "Not all of these lines were read at this revision before; read lines before you edit them."
RESULT_MARGIN_BYTES = 4_096  # of a result, for its other members
MAX_NAME_LENGTH = 100  # of the section of a line


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The settings of the tools."""

    needs_lease: bool = True  # CT-60
    enforces_inspection: bool = True  # RS-47
    is_turned_off: bool = False  # CT-37
    max_document_bytes: int = 1_048_576
    max_result_bytes: int = 32_768

    @property
    def max_answer_bytes(self) -> int:
        """How many bytes the members of an answer may have that depend on the text."""
        return max(self.max_result_bytes - RESULT_MARGIN_BYTES, self.max_result_bytes // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The outcome of a call on one revision.

    `text` is the new text of an edit, `inspected` are the lines of this revision that the holder of the lease
    was shown. With a `problem` the call fails, but its lease is renewed all the same.
    """

    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inspected: Sequence[LineRange] | None = None
    text: str | None = None
    problem: HostError | None = None


class CallFailed(Exception):
    """A call failed at this document, if there is one."""

    def __init__(self, problem: HostError, document: Document | None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.document = document


def describe_success(document: Document, claim: Claim) -> dict[str, Any]:
    """Return the members of every answer: the revision, and the lease if the run has it. CT-29"""
    return {"ok": True, "revision_id": document.revision_id, "lease_id": _own_lease_id(document, claim)}


def describe_failure(failure: CallFailed, args: Args, claim: Claim) -> dict[str, Any]:
    """Return a failure as a result: its code, its message and the current revision. CT-07, CT-26, CT-29"""
    problem, document = failure.problem, failure.document
    details = {
        ("canvas_epoch" if name == "epoch" else name): value
        for name, value in problem.details.items()
        if name not in HIDDEN_DETAILS
    }
    return {
        "ok": False,
        "code": problem.code,
        "message": problem.message,
        **details,
        "revision_id": None if document is None else document.revision_id,
        "lease_id": args.get("lease_id") or (None if document is None else _own_lease_id(document, claim)),
    }


# Details of a problem that its message or another member of the answer has.
HIDDEN_DETAILS = frozenset({"problem", "what", "id", "next", "hint", "revision_id", "lease_id"})


def _own_lease_id(document: Document, claim: Claim) -> str | None:
    held = document.live_lease
    return held.lease_id if held is not None and held.run_id == claim.run_id else None


# --- computing ----------------------------------------------------------------------------------------------


def compute_grep(args: Args, rules: ToolRules, document: Document) -> Computed:
    """Find lines by text or by a regular expression. CT-21"""
    text = document.text
    deadline = time.monotonic() + MAX_REGEX_SECONDS
    try:
        section = None if "section" not in args else _lines_of(Outline(text).find(args["section"]))
        found = grep(
            text,
            args["query"],
            regex=args.get("regex", False),
            within=section,
            is_over=lambda: time.monotonic() > deadline,
        )
    except BadInput as problem:
        return Computed(problem=problem)
    described = [
        {"line": match.line, "text": match.text, "section": _shorten_name(match.section)}
        for match in found.matches
    ]
    count = _count_fitting(map(_size, described), rules.max_answer_bytes)
    answer: dict[str, Any] = {
        "matches": described[:count],
        "line_count": count_lines(text),
        **({"is_truncated": True} if found.is_truncated or count < len(described) else {}),
    }
    # A line that was shortened was not shown.
    shown = [
        (match.line, match.line) for match in found.matches[:count] if len(match.text) <= MAX_SHOWN_WIDTH
    ]
    return Computed(answer=answer, inspected=add_inspected(document.inspected, shown))


def compute_read_lines(args: Args, rules: ToolRules, document: Document) -> Computed:
    """Read a range of lines, a section, or a list item. CT-22, RS-46"""
    try:
        first, last = _find_range(args, document.text)
    except BadInput as problem:
        return Computed(problem=problem)
    return _read(document, rules, first, last)


def compute_read_all(_: Args, rules: ToolRules, document: Document) -> Computed:
    """Read the whole text. CT-23"""
    return _read(document, rules, 1, count_lines(document.text))


def _find_range(args: Args, text: str) -> LineRange:
    """Return the lines that the arguments of a read name. Raises `BadInput`."""
    line_count = count_lines(text)
    has_lines = "start_line" in args or "end_line" in args
    has_section = "section" in args or "item" in args
    if has_lines == has_section or ("start_line" in args) != ("end_line" in args):
        raise BadInput(problem="Give start_line and end_line, or section or item, to name the lines to read.")
    if has_section:
        section = Outline(text).find(args["section"]) if "section" in args else None
        if "item" in args:
            return find_item(split_lines(text), section, int(args["item"]))
        return (1, line_count) if section is None else _lines_of(section)
    first, last = int(args["start_line"]), int(args["end_line"])  # 1.0 is an integer in JSON Schema
    if last < first:
        raise BadInput(problem=f"end_line {last} must not be below start_line {first}.")
    within = clamp(first, last, line_count)
    if within is None:
        raise BadInput(problem=f"start_line {first} is past the end: the document has {line_count} lines.")
    return within


def _lines_of(section: Section) -> LineRange:
    """Return the lines of a section, with its heading and its subsections."""
    return (section.first, section.last)


def _read(document: Document, rules: ToolRules, first: int, last: int) -> Computed:
    text = document.text
    numbered = format_numbered(text, first, last)
    answer = {
        "text": numbered,
        "start_line": first,
        "end_line": last,
        "line_count": count_lines(text),
        "section": _shorten_name(Outline(text).name_of(first)),
    }
    if _size(answer) > rules.max_answer_bytes:
        return Computed(problem=_too_large(numbered, first, rules))
    return Computed(answer=answer, inspected=add_inspected(document.inspected, [(first, last)]))


def _too_large(numbered: str, first: int, rules: ToolRules) -> TooLarge:
    """Return the failure of a read that is too long, which says how many of its lines can be read."""
    limit = rules.max_answer_bytes
    # The numbers of lines and the name of the section need some bytes too.
    count = _count_fitting(map(_size, numbered.split("\n")), limit - 4 * MAX_NAME_LENGTH)
    advice = (
        f"Read lines {first} to {first + count - 1} with canvas_read_lines, and then on from line "
        f"{first + count}; or find lines with canvas_grep."
        if count
        else f"Line {first} alone is too long; find other lines with canvas_grep."
    )
    return TooLarge.with_message(
        f"The result is larger than the limit of {limit} bytes. {advice}", limit=limit
    )


def _shorten_name(name: str | None) -> str | None:
    return None if name is None else shorten(name, MAX_NAME_LENGTH)


def _size(value: Any) -> int:
    return len(to_json(value).encode())


def _count_fitting(sizes: Iterable[int], limit: int) -> int:
    """Return how many of the first items fit into the limit together."""
    return sum(1 for total in accumulate(size + 1 for size in sizes) if total <= limit)


def compute_edit(args: Args, rules: ToolRules, document: Document) -> Computed:
    """Apply a patch to the text, all of it or nothing, if its old lines were read before. RS-47"""
    try:
        applied = apply_patch(
            document.text,
            args["patch"],
            revision_id=document.revision_id,
            base_revision_id=args.get("base_revision_id"),
            max_text_bytes=rules.max_document_bytes,
        )
    except PatchRejected as problem:
        return Computed(problem=problem)
    advice = [applied.advice] if applied.advice else []
    try:
        check_inspected(
            document.inspected,
            applied.old_ranges,
            line_count=count_lines(document.text),
            revision_id=document.revision_id,
        )
    except PatchRejected as problem:
        # Without a lease it is not known which lines were shown.
        if rules.enforces_inspection and "lease_id" in args:
            return Computed(problem=problem)
        advice += [NOT_READ] if "lease_id" in args else []
    answer: dict[str, Any] = {
        "applied_hunks": applied.applied_hunks,
        "new_revision_id": revision_of(applied.text),
        **({"corrections": list(applied.corrections)} if applied.corrections else {}),
        **({"advice": " ".join(advice)} if advice else {}),
    }
    return Computed(answer=answer, text=applied.text)
