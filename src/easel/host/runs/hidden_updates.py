"""Hidden canvas updates of a run: what changed in the documents of its session. CT-51, CT-53, CT-54

Owns when a change is reported: those of persons at the start of the run that answers the next message, those
of the assistant in the batch that ends its run. A batch stores the messages and marks the drafts as reported
in one transaction, so that no take-over reports a change twice or loses one. A draft is reported only to the
session of its document: an edit by a run of another session is reported with the next message there.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby

from easel.core.document.document import Author, DocumentDraft, Reported
from easel.core.document.hidden_update import format_diff_update
from easel.core.run.conversation import Step
from easel.core.run.progress import Progress
from easel.core.session.message import message
from easel.core.stream.message_text import MessageText, take_out_runs
from easel.host.ports import DocumentStore
from easel.host.runs.log_writer import NO_UPDATES, RunLogWriter, Updates, retry_until_available
from easel.ids import CanvasId, MessageId

THREAD_CHARACTERS = 20_000  # of a document; the diff of a longer one is made in a thread
_DOCUMENT_TOOL = "canvas_"  # the prefix of the tools that edit documents


class HiddenUpdates:
    """`documents` is None if the tools for documents are turned off: then nothing is reported. CT-02"""

    def __init__(self, documents: DocumentStore | None) -> None:
        self._documents = documents

    async def report_at_start(self, log: RunLogWriter, progress: Progress) -> tuple[str, ...]:
        """Report the changes since the last report before the first step, and return the updates. CT-53

        An attempt that finds updates or steps of an earlier attempt reports nothing: what changed since is
        reported at the end of the run, or with the next message.
        """
        documents, claim = self._documents, log.claim
        if documents is None or not claim.has_document:
            return ()
        if progress.updates or progress.steps:
            return tuple(take_out_runs(text).text for text in progress.updates)
        drafts = await retry_until_available(
            lambda: documents.list_unreported(claim.account_id, claim.session_id)
        )
        updates = await _to_updates(log, documents, drafts, "a")
        if updates.reported:  # also without a net change: else such drafts are kept until the next one
            log.write_updates(updates)
            await log.flush()
        return tuple(text.text for text in updates.texts)

    async def collect_at_end(self, log: RunLogWriter, steps: Sequence[Step]) -> Updates:
        """Return the updates for the batch that ends the run. CT-54

        Each document is reported up to its newest change by this run. Later changes of persons are reported
        with their next message.
        """
        documents, claim = self._documents, log.claim
        if documents is None or not (claim.has_document or _used_documents(steps)):
            return NO_UPDATES
        if not await log.settle():
            return NO_UPDATES  # the drafts of the updates that are pending would be reported twice
        drafts = await retry_until_available(
            lambda: documents.list_unreported(claim.account_id, claim.session_id)
        )
        own = [draft for draft in drafts if draft.author.run_id == claim.run_id]
        newest = {draft.canvas_id: draft.draft_no for draft in own}
        due = [draft for draft in drafts if draft.draft_no <= newest.get(draft.canvas_id, 0)]
        return await _to_updates(log, documents, due, "b")


def _used_documents(steps: Sequence[Step]) -> bool:
    return any(call.tool.startswith(_DOCUMENT_TOOL) for step in steps for call in step.calls)


async def _to_updates(
    log: RunLogWriter, documents: DocumentStore, drafts: Sequence[DocumentDraft], place: str
) -> Updates:
    """Return one update for the changes of each author in turn, per document. All drafts are reported."""
    if not drafts:
        return NO_UPDATES
    claim = log.claim
    newest = await retry_until_available(lambda: documents.list_newest(claim.account_id, claim.session_id, 1))
    length = sum(len(draft.before) + len(draft.text) for draft in drafts)
    is_long = length > THREAD_CHARACTERS
    changes = await asyncio.to_thread(_describe, drafts, newest) if is_long else _describe(drafts, newest)
    prefix = f"hid_{claim.run_id.removeprefix('run_')}_{place}"
    named = [
        (MessageId(f"{prefix}{number}"), text, author) for number, (author, text) in enumerate(changes, 1)
    ]
    last = {draft.canvas_id: draft.draft_no for draft in drafts}
    return Updates(
        [log.events.hidden_update(message_id, text, author) for message_id, text, author in named],
        [message(message_id, text, role="user") for message_id, text, _ in named],
        [Reported(canvas_id, draft_no) for canvas_id, draft_no in last.items()],
        [text for _, text, _ in named],
    )


def _describe(
    drafts: Sequence[DocumentDraft], newest: Sequence[CanvasId]
) -> list[tuple[Author, MessageText]]:
    """Return each author in turn with its update, if the text changed. The newest document is not named."""
    changes: list[tuple[Author, MessageText]] = []
    for (canvas_id, author), group in groupby(drafts, key=lambda draft: (draft.canvas_id, draft.author)):
        successive = list(group)
        name = None if canvas_id in newest else canvas_id
        text = format_diff_update(successive[0].before, successive[-1].text, name)
        if text is not None:
            changes.append((author, take_out_runs(text)))
    return changes
