"""Helpers of the contract tests of documents: canvases of mode markdown, and decisions that change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easel.core.canvas.canvas import NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.document.document import Author, AuthorKind, Document, DocumentChange
from easel.core.document.lease import Free, Held, check_out, require
from easel.core.run.run import NewRun
from easel.core.session.message import question
from easel.core.stream.message_text import take_out_runs
from easel.ids import OWNER, CanvasId, RunId, SessionId, new_run_id

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.host.ports import CanvasStore, DocumentStore
    from tests.stores.harness import Store

NAME = CanvasId("plan")
SESSION = SessionId("talk")
ANN = Author(AuthorKind.PERSON, "ann")
BOB = Author(AuthorKind.PERSON, "bob")

Decide = "Callable[[Document], DocumentChange | None]"


def assistant(run_id: str) -> Author:
    return Author(AuthorKind.ASSISTANT, "main", RunId(run_id))


def ask(session: str = SESSION, text: str = "hello") -> NewRun:
    """Return a run with the message of a user."""
    run_id = new_run_id()
    return NewRun(run_id, OWNER, SessionId(session), text, 3, question=question(run_id, take_out_runs(text)))


async def create_document(canvases: CanvasStore, name: str = NAME, **changed: Any) -> None:
    new = {
        "account_id": OWNER,
        "canvas_id": CanvasId(name),
        "agent_id": "main",
        "title": "Plan",
        "spec": {"mode": "markdown"},
        "state": {},
        "owner_session_key": f"agent:main:{SESSION}",
        **changed,
    }
    events = CanvasEvents(CanvasId(name), agent_id="owner", event_id="evt_1")
    assert await canvases.create(NewCanvas(**new), events.created(1, "Plan")) is not None


def write(text: str, author: Author = ANN, *, promotes: bool = False) -> Any:
    """Return a decision that stores a text."""

    def decide(document: Document) -> DocumentChange:
        events = CanvasEvents(document.canvas_id, agent_id=author.id, event_id="evt_2")
        event = events.document_changed(document.canvas_revision, "r", document.lease.epoch, author)
        return DocumentChange(text=text, author=author, promotes=promotes, events=[event])

    return decide


async def list_authors(documents: DocumentStore, name: str = NAME) -> list[tuple[str, Author]]:
    """Return revision and author of the versions of a document, oldest first."""
    versions = await documents.list_versions(OWNER, CanvasId(name), before=None, limit=100)
    assert [version.version_no for version in versions] == list(range(len(versions), 0, -1))
    return [(version.revision_id, version.author) for version in reversed(versions)]


def take_lease(claim: Claim, randomness: str = "x") -> Any:
    """Return a decision that checks the document out for the run of the claim."""

    def decide(document: Document) -> DocumentChange:
        held = check_out(
            document.lease,
            run_id=claim.run_id,
            session_id=claim.session_id,
            now=document.now,
            randomness=randomness,
            is_interrupted=document.is_interrupted,
        )
        return DocumentChange(lease=held)

    return decide


def write_under(lease_id: str, claim: Claim, text: str) -> Any:
    """Return a decision that stores a text if the lease is valid."""

    def decide(document: Document) -> DocumentChange:
        require(document.lease, lease_id=lease_id, run_id=claim.run_id, now=document.now)
        return DocumentChange(text=text, author=assistant(claim.run_id))

    return decide


async def get_document(documents: DocumentStore, name: str = NAME) -> Document:
    document = await documents.get(OWNER, CanvasId(name))
    assert document is not None
    return document


async def change(documents: DocumentStore, decide: Any, name: str = NAME, **how: Any) -> Document:
    document = await documents.change(OWNER, CanvasId(name), decide, **how)
    assert document is not None
    return document


async def check_out_for(documents: DocumentStore, claim: Claim, name: str = NAME) -> Held:
    document = await change(documents, take_lease(claim), name, claim=claim, locks_session=True)
    assert isinstance(document.lease, Held)
    return document.lease


def is_free(document: Document) -> bool:
    return isinstance(document.lease, Free)


async def expire_leases(store: Store) -> None:
    await store.sql(f"update documents set lease_expires_at = {store.ago(1)} where lease_id is not null")
