"""The tools with which an agent reads and edits a document under its lease. CT-20

Owns the order of a call: read the document, check the lease, compute outside of any lock, then check again
and store under the document's lock. So a user never waits for an agent's patch, and a patch that was computed
while the user acted is refused. Every failure at a document is a result with a code and the current
`revision_id`, which the model reads (CT-07, CT-29). Does not know models or how documents are stored.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from easel.core.canvas.canvas import parse_canvas_id
from easel.core.canvas.events import CanvasEvents
from easel.core.document.document import Author, AuthorKind, Decide, Document, DocumentChange, revision_of
from easel.core.document.lease import Held, check_out, release, renew, require
from easel.core.document.rejection import Reason
from easel.core.principal import MAIN_AGENT
from easel.core.run.limits import PATCH_TOOL
from easel.core.run.run import Claim
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.errors import (
    BadInput,
    HostError,
    LeaseExpired,
    LockNotAvailable,
    LockNotOwned,
    NotFound,
    PatchRejected,
    StaleEpoch,
    ToolFailed,
    Unavailable,
)
from easel.host.commits import Committed
from easel.host.documents.answers import (
    CallFailed,
    Computed,
    ToolRules,
    compute_edit,
    compute_grep,
    compute_read_all,
    compute_read_lines,
    describe_failure,
    describe_success,
)
from easel.host.documents.definitions import MAX_LEASE_ID_LENGTH, definitions
from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.transactions import DocumentTransactions
from easel.host.ports import Tool
from easel.host.tools.native import Args, NativeTool
from easel.ids import CanvasId, is_name, new_event_id

MAX_ATTEMPTS = 5  # of a call while others write the document
MAX_INLINE_LENGTH = 20_000  # characters of text and patch; with more, the work is done in a thread
NO_DOCUMENT = (
    "This session has no document. Create one with gsv__Canvas, for example "
    '{"operation":"upsert","canvasId":"notes","title":"Notes","spec":{"version":1,"mode":"markdown"}}, '
    "then call canvas_check_out again."
)
NOT_A_DOCUMENT = (
    "There is no document {id}: you have no canvas of this name, or its mode is not `markdown`. "
    "gsv__Canvas with the operation `list` returns your canvases."
)
TURNED_OFF = "this host does not offer the canvas_ tools now; continue without them and inform the user."
# The codes after which the run does not have the lease.
LEASE_ENDED = (LockNotOwned, StaleEpoch, LeaseExpired)

Work = Callable[[Args, Claim], Awaitable[Any]]
Compute = Callable[[Args, ToolRules, Document], Computed]


class _TextMoved(Exception):
    """The document has another revision than the one that the call was computed on."""


def document_tools(transactions: DocumentTransactions, leases: LeaseKeeper, rules: ToolRules) -> list[Tool]:
    """Return the seven tools."""
    own = _DocumentTools(transactions, leases, rules)
    work: dict[str, Work] = {
        "canvas_check_out": own.check_out,
        "canvas_renew_lease": own.renew_lease,
        "canvas_check_in": own.check_in,
        "canvas_grep": partial(own.compute, compute_grep),
        "canvas_read_lines": partial(own.compute, compute_read_lines),
        "canvas_read_all": partial(own.compute, compute_read_all),
        "canvas_apply_patch": partial(own.compute, compute_edit),
    }
    return [
        NativeTool(definition, partial(own.use, name, work[name]), partial(own.refuse, definition))
        for name, definition in definitions(rules).items()
    ]


class _DocumentTools:
    def __init__(self, transactions: DocumentTransactions, leases: LeaseKeeper, rules: ToolRules) -> None:
        self._transactions = transactions
        self._store = transactions.store
        self._leases = leases
        self._rules = rules

    async def use(self, name: str, work: Work, args: Args, context: ToolContext) -> Any:
        """Call a tool. A failure at a document is returned as a result with its code. CT-07"""
        claim = context.run
        if self._rules.is_turned_off:
            raise ToolFailed(tool=name, reason=TURNED_OFF)
        try:
            return await work(args, claim)
        except CallFailed as failure:
            return describe_failure(failure, args, claim)

    async def refuse(
        self, definition: ToolDefinition, problem: BadInput, args: Args, context: ToolContext
    ) -> Any:
        """Return the failure of a call whose arguments do not fit: of its lease, else `problem`. CT-11"""
        needs_lease = "lease_id" in definition.schema.get("required", ())
        lease_id = str(args.get("lease_id", ""))[:MAX_LEASE_ID_LENGTH]
        known = {"lease_id": lease_id} if needs_lease or "lease_id" in args else {}

        async def fail(known: Args, claim: Claim) -> NoReturn:
            if known:
                document = await self._read(await self._find_canvas(known, claim), known, claim)
            else:
                document = await self._read_newest(claim)
            if definition.name != PATCH_TOOL:
                raise CallFailed(problem, document)
            rejected = PatchRejected(problem=problem.message, reason=str(Reason.BAD_ARGUMENTS))  # CT-26
            raise CallFailed(rejected, document)

        return await self.use(definition.name, fail, known, context)

    # -- the lease -------------------------------------------------------------------------------------------

    async def check_out(self, args: Args, claim: Claim) -> Any:
        canvas_id = await self._find_canvas(args, claim)
        events = _events_of(claim, canvas_id)
        randomness = f"{secrets.token_hex(4)}_{canvas_id}"

        def decide(document: Document) -> DocumentChange:
            with _failing_at(document):
                held = check_out(
                    document.lease,
                    run_id=claim.run_id,
                    session_id=claim.session_id,
                    now=document.now,
                    randomness=randomness,
                    is_interrupted=document.is_interrupted,
                )
            event = events.lease_changed(document.canvas_revision, held, "checked_out")
            return DocumentChange(lease=held, inspected=(), events=[event])

        document = (await self._apply(canvas_id, args, claim, decide, locks_session=True)).after
        self._leases.note_checked_out(claim.run_id, canvas_id)
        return {
            **describe_success(document, claim),
            "canvas_id": canvas_id,
            "revision_id_at_checkout": document.revision_id,
            **_describe_lease(document),
        }

    async def renew_lease(self, args: Args, claim: Claim) -> Any:
        canvas_id = await self._find_canvas(args, claim)

        def decide(document: Document) -> DocumentChange:
            return DocumentChange(lease=renew(_require(document, args, claim), document.now))

        document = (await self._apply(canvas_id, args, claim, decide)).after
        self._leases.note_checked_out(claim.run_id, canvas_id)
        return {**describe_success(document, claim), **_describe_lease(document)}

    async def check_in(self, args: Args, claim: Claim) -> Any:
        """Release the lease. A lease that has already ended is not a failure. CT-17"""
        canvas_id = await self._find_canvas(args, claim)
        events = _events_of(claim, canvas_id)

        def decide(document: Document) -> DocumentChange:
            free = release(_require(document, args, claim))
            event = events.lease_changed(document.canvas_revision, free, "checked_in")
            return DocumentChange(lease=free, inspected=(), events=[event])

        is_released, note = True, {}
        try:
            document = (await self._apply(canvas_id, args, claim, decide)).after
        except CallFailed as failure:
            if not isinstance(failure.problem, StaleEpoch | LeaseExpired) or failure.document is None:
                raise
            is_released, document = False, failure.document
            note = {"message": "The lease had already ended."}
        else:
            self._leases.note_checked_in(claim.run_id, canvas_id)
        return {
            **describe_success(document, claim),
            "lease_id": args["lease_id"],
            "released": is_released,
            **note,
        }

    # -- reading and editing ---------------------------------------------------------------------------------

    async def compute(self, work: Compute, args: Args, claim: Claim) -> Any:
        """Compute the answer of a call on one revision, and store its change if that is still current."""
        canvas_id = await self._find_canvas(args, claim)
        for _ in range(MAX_ATTEMPTS):
            document = await self._read(canvas_id, args, claim)
            size = len(document.text) + len(args.get("patch", ""))
            if args.get("regex") or size > MAX_INLINE_LENGTH:
                computed = await asyncio.to_thread(work, args, self._rules, document)
            else:
                computed = work(args, self._rules, document)
            try:
                stored = await self._store_computed(canvas_id, args, claim, document, computed)
            except _TextMoved:
                continue
            if computed.problem is not None:
                raise CallFailed(computed.problem, stored)
            return {**describe_success(stored, claim), **computed.answer}
        raise Unavailable(what=f"Document {canvas_id}")

    async def _read(self, canvas_id: CanvasId, args: Args, claim: Claim) -> Document:
        """Return the document. A call without a valid lease fails before the text is used. CT-11"""
        document = await self._store.get(claim.account_id, canvas_id)
        if document is None:
            raise CallFailed(_no_document(canvas_id, args), None)
        try:
            self._check(document, args, claim)
        except CallFailed:

            def check_under_lock(current: Document) -> None:
                self._check(current, args, claim)

            # The code depends on the run too, which is read under the lock; the lease may be renewed there.
            return (await self._apply(canvas_id, args, claim, check_under_lock)).after
        return document

    async def _store_computed(
        self, canvas_id: CanvasId, args: Args, claim: Claim, base: Document, computed: Computed
    ) -> Document:
        """Store what a call computed on `base`. Raises `_TextMoved` if the document changed since."""
        events = _events_of(claim, canvas_id)
        author = Author(AuthorKind.ASSISTANT, MAIN_AGENT, claim.run_id)

        def decide(document: Document) -> DocumentChange | None:
            held = self._check(document, args, claim)
            if document.revision_id != base.revision_id:
                raise _TextMoved
            if computed.text is not None:
                event = events.document_changed(
                    document.canvas_revision, revision_of(computed.text), document.lease.epoch, author
                )
                change = DocumentChange(text=computed.text, author=author, inspected=(), events=[event])
            elif held is not None:
                change = DocumentChange(inspected=computed.inspected)
            else:
                return None
            return replace(change, lease=None if held is None else renew(held, document.now))

        # Without a lease, only the lock of the session excludes a message that arrives during the change.
        done = await self._apply(
            canvas_id, args, claim, decide, locks_session="lease_id" not in args and computed.text is not None
        )
        if done.change is not None and done.change.lease is not None:
            self._leases.note_checked_out(claim.run_id, canvas_id)
        return done.after

    def _check(self, document: Document, args: Args, claim: Claim) -> Held | None:
        """Return the lease of the call. Returns None for a call without one, if that is allowed. CT-60"""
        if "lease_id" in args or self._rules.needs_lease:
            return _require(document, args, claim)
        if document.is_interrupted:
            raise CallFailed(StaleEpoch(epoch=document.lease.epoch), document)
        return None

    async def _apply(
        self, canvas_id: CanvasId, args: Args, claim: Claim, decide: Decide, *, locks_session: bool = False
    ) -> Committed[Document, DocumentChange | None, Document]:
        """Apply a change of the run. Raises `CallFailed` with the document at which a rule failed."""
        try:
            return await self._transactions.apply(
                claim.account_id,
                canvas_id,
                decide,
                claim=claim,
                locks_session=locks_session,
                is_repeatable=False,
            )
        except NotFound as problem:
            raise CallFailed(_no_document(canvas_id, args), None) from problem
        except CallFailed as failure:
            if isinstance(failure.problem, LEASE_ENDED) and not _is_held_by(failure.document, claim):
                self._leases.note_checked_in(claim.run_id, canvas_id)
            raise

    async def _find_canvas(self, args: Args, claim: Claim) -> CanvasId:
        """Return the canvas that the call names by its lease or its id, or the session's newest document."""
        lease_id: str | None = args.get("lease_id")
        if lease_id is not None:
            canvas_id = canvas_of(lease_id)
            if canvas_id is None:
                problem = LockNotOwned(lease_id=lease_id[:100] or "A missing lease_id")
                raise CallFailed(problem, await self._read_newest(claim))
            return canvas_id
        if (name := args.get("canvas_id")) is not None:
            try:
                return parse_canvas_id(name, "document")
            except NotFound as problem:
                raise CallFailed(_no_document(name[:200], args), None) from problem
        newest = await self._find_newest(claim)
        if newest is None:
            raise CallFailed(NotFound.with_message(NO_DOCUMENT, what="document"), None)
        return newest

    async def _find_newest(self, claim: Claim) -> CanvasId | None:
        return next(iter(await self._store.list_newest(claim.account_id, claim.session_id, 1)), None)

    async def _read_newest(self, claim: Claim) -> Document | None:
        newest = await self._find_newest(claim)
        return None if newest is None else await self._store.get(claim.account_id, newest)


def canvas_of(lease_id: str) -> CanvasId | None:
    """Return the canvas that a `lease_id` ends with, or None if it has not the form of one.

    So one call concerns one canvas (CT-61), on any instance and without a lookup. The row of the document
    alone decides whether the lease is valid.
    """
    canvas_id = (lease_id.split("_", 4) + [""] * 4)[4]
    return CanvasId(canvas_id) if is_name(canvas_id) else None


def _require(document: Document, args: Args, claim: Claim) -> Held:
    """Return the lease of the call. The lease of a run that the user interrupted is stale. RS-48, CT-19"""
    with _failing_at(document):
        try:
            return require(document.lease, lease_id=args["lease_id"], run_id=claim.run_id, now=document.now)
        except LeaseExpired as problem:
            if document.is_interrupted:
                raise StaleEpoch(epoch=document.lease.epoch) from problem
            raise


@contextlib.contextmanager
def _failing_at(document: Document) -> Generator[None]:
    """Raise `CallFailed` with the document for a failed rule of its lease."""
    try:
        yield
    except (*LEASE_ENDED, LockNotAvailable) as problem:
        raise CallFailed(problem, document) from problem


def _is_held_by(document: Document | None, claim: Claim) -> bool:
    """Return whether the run has the lease, also if the call named another one."""
    held = None if document is None else document.live_lease
    return held is not None and held.run_id == claim.run_id


def _no_document(canvas_id: str, args: Args) -> HostError:
    """Return the error of a call whose document does not exist."""
    if (lease_id := args.get("lease_id")) is not None:
        return LockNotOwned(lease_id=lease_id[:100])
    return NotFound.with_message(NOT_A_DOCUMENT.format(id=canvas_id), what="document", id=canvas_id)


def _describe_lease(document: Document) -> dict[str, Any]:
    lease = document.lease
    expiry = (
        {"expires_at": lease.expires_at.isoformat(timespec="milliseconds")} if isinstance(lease, Held) else {}
    )
    return {"canvas_epoch": lease.epoch, **expiry}


def _events_of(claim: Claim, canvas_id: CanvasId) -> CanvasEvents:
    return CanvasEvents.by(claim.agent, canvas_id, event_id=new_event_id(), node_id="document")
