"""Transactions on documents: a change is decided under the document's lock, committed and announced.

Owns the order of the steps, which people and agents share. Does not know the content of a change.
"""

from easel.core.document.document import Decide, Document, DocumentChange
from easel.core.run.run import Claim
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound, Unavailable
from easel.host.ports import DocumentStore, Notifier
from easel.ids import AccountId, CanvasId, is_name, scoped_key


class DocumentTransactions:
    def __init__(self, documents: DocumentStore, notifier: Notifier) -> None:
        self.store = documents
        self._notifier = notifier

    async def find(self, account_id: AccountId, canvas_id: str) -> Document:
        """Return the document. Raises `NotFound`, also for a canvas of another mode."""
        document = await self.store.get(account_id, parse_document_id(canvas_id))
        if document is None:
            raise NotFound(what="document", id=canvas_id)
        return document

    async def apply(
        self,
        account_id: AccountId,
        canvas_id: str,
        decide: Decide,
        *,
        claim: Claim | None = None,
        locks_session: bool = False,
        is_repeatable: bool = True,
    ) -> Document:
        """Commit the change that `decide` returns, and notify the subscribers of the canvas.

        `is_repeatable`: whether the caller may safely retry after a lost reply. Raises `NotFound`, and
        `ClaimLost` if the claim is lost.
        """
        sent: DocumentChange | None = None

        def record_change(document: Document) -> DocumentChange | None:
            nonlocal sent
            sent = decide(document)
            return sent

        try:
            document = await self.store.change(
                account_id,
                parse_document_id(canvas_id),
                record_change,
                claim=claim,
                locks_session=locks_session,
            )
        except Unavailable as problem:
            if sent is not None:
                raise Unavailable.after_sending(
                    problem.details["what"], is_repeatable=is_repeatable
                ) from problem
            raise
        if document is None:
            raise NotFound(what="document", id=canvas_id)
        if sent is not None and sent.events:
            self._notifier.notify(CanvasAppended(scoped_key(account_id, canvas_id), document.last_seq))
        return document


def parse_document_id(canvas_id: str) -> CanvasId:
    """Return the id of a document. Raises `NotFound`, without a query, if it is not a valid id."""
    if not is_name(canvas_id):
        raise NotFound(what="document", id=canvas_id[:200])
    return CanvasId(canvas_id)
