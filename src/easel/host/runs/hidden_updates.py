"""Hidden canvas updates of a run: what changed in its session's document. CT-51, CT-53, CT-54

Owns when a change is reported: those of persons at the start of the run that answers the next message, those
of the assistant in the batch that ends its run. A batch stores the messages and marks the drafts as reported
in one transaction, so that no take-over reports a change twice or loses one.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby

from easel.core.document.document import Draft, Reported
from easel.core.document.hidden_update import format_diff_update
from easel.core.run.conversation import Step
from easel.core.run.events import RunEvents
from easel.core.run.progress import Progress
from easel.core.session.message import message
from easel.core.stream.message_text import MessageText, take_out_runs
from easel.host.ports import DocumentStore
from easel.host.runs.log_writer import NO_UPDATES, RunLogWriter, Updates, retry_until_available
from easel.ids import MessageId, RunId

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
            lambda: documents.list_unreported(claim.user_id, claim.session_id)
        )
        updates = await _to_updates(log.events, claim.run_id, drafts, "a")
        if updates.events:
            log.write_updates(updates)
            await log.flush()
        return tuple(text.text for text in updates.texts)

    async def collect_at_end(self, log: RunLogWriter, steps: Sequence[Step]) -> Updates:
        """Return the updates for the batch that ends the run: up to the newest change by this run. CT-54

        Later changes of persons are reported with their next message.
        """
        documents, claim = self._documents, log.claim
        if documents is None or not (claim.has_document or _used_documents(steps)):
            return NO_UPDATES
        if not await log.settle():
            return NO_UPDATES  # the drafts of the updates that are pending would be reported twice
        drafts = await retry_until_available(
            lambda: documents.list_unreported(claim.user_id, claim.session_id)
        )
        newest = max((draft.draft_no for draft in drafts if draft.author.run_id == claim.run_id), default=0)
        return await _to_updates(
            log.events, claim.run_id, [draft for draft in drafts if draft.draft_no <= newest], "b"
        )


def _used_documents(steps: Sequence[Step]) -> bool:
    return any(call.tool.startswith(_DOCUMENT_TOOL) for step in steps for call in step.calls)


async def _to_updates(events: RunEvents, run_id: RunId, drafts: Sequence[Draft], place: str) -> Updates:
    """Return one update for the changes of each author in turn. All drafts are reported."""
    if not drafts:
        return NO_UPDATES
    length = sum(len(draft.before) + len(draft.text) for draft in drafts)
    is_long = length > THREAD_CHARACTERS
    changes = await asyncio.to_thread(_describe, drafts) if is_long else _describe(drafts)
    name = run_id.removeprefix("run_")
    named = [(MessageId(f"hid_{name}_{place}{draft.draft_no}"), text, draft) for draft, text in changes]
    last = drafts[-1]
    return Updates(
        [events.hidden_update(message_id, text, draft.author) for message_id, text, draft in named],
        [message(message_id, text, role="user") for message_id, text, _ in named],
        [Reported(last.canvas_id, last.draft_no)],
        [text for _, text, _ in named],
    )


def _describe(drafts: Sequence[Draft]) -> list[tuple[Draft, MessageText]]:
    """Return the newest draft of each author in turn with its update, if the text changed."""
    changes: list[tuple[Draft, MessageText]] = []
    for _, group in groupby(drafts, key=lambda draft: draft.author):
        successive = list(group)
        text = format_diff_update(successive[0].before, successive[-1].text)
        if text is not None:
            changes.append((successive[-1], take_out_runs(text)))
    return changes
