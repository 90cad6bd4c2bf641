"""Transactions on documents: a change is decided under the document's lock, committed and announced.

Owns the order of the steps, which people and agents share. Does not know the content of a change.
"""

from functools import partial

from easel.core.canvas.canvas import parse_canvas_id
from easel.core.document.document import Decide, Document, DocumentChange
from easel.core.run.run import Claim
from easel.core.stream.notifications import CanvasAppended
from easel.errors import NotFound
from easel.host.commits import Committed, commit
from easel.host.ports import ArtifactAccess, DocumentStore, Notifier
from easel.ids import AccountId, scoped_key


class DocumentTransactions:
    def __init__(self, documents: DocumentStore, artifacts: ArtifactAccess, notifier: Notifier) -> None:
        self.store = documents
        self._artifacts = artifacts
        self._notifier = notifier

    async def find(self, account_id: AccountId, canvas_id: str) -> Document:
        """Return the document. Raises `NotFound`, also for a canvas of another mode."""
        document = await self.store.get(account_id, parse_canvas_id(canvas_id, "document"))
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
    ) -> Committed[Document, DocumentChange | None, Document]:
        """Commit the change that `decide` returns, and notify the subscribers of the canvas.

        Raises `NotFound`, and `ClaimLost` if the claim is lost.
        """
        name = parse_canvas_id(canvas_id, "document")
        done = await commit(
            "document",
            name,
            lambda record: self.store.change(
                account_id, name, record, claim=claim, locks_session=locks_session
            ),
            decide,
            partial(self._artifacts.store, account_id),
            is_repeatable=is_repeatable,
        )
        if done.change is not None and done.change.events:
            self._notifier.notify(CanvasAppended(scoped_key(account_id, name), done.after.last_seq))
        return done
