"""Documents over HTTP: the shapes of requests and responses, and calls of the document service."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.document.document import Document, DocumentVersion
from easel.edges.decoding import Params
from easel.edges.http.calls import Call
from easel.edges.http.wire import NumberCursor, PageLimit
from easel.edges.paging import read_page

RevisionId = Annotated[str, Meta(max_length=100, description="The SHA-256 of a text.")]


class LeaseView(Struct):
    run_id: Annotated[str, Meta(description="The run whose agent edits the document.")]
    expires_at: datetime


class SavedDocument(Struct):
    canvas_id: str
    revision_id: RevisionId
    canvas_epoch: Annotated[int, Meta(description="Grows when a person acts; older leases are invalid.")]
    version_revision_id: Annotated[
        str | UnsetType, Meta(description="The revision of the newest version, if there is one.")
    ] = UNSET
    lease: Annotated[LeaseView | UnsetType, Meta(description="Present while an agent has the lease.")] = UNSET


class DocumentView(SavedDocument, kw_only=True):
    text: str


class PutDocument(Params):
    text: str
    base_revision_id: Annotated[
        RevisionId | None,
        Meta(
            description="The revision that was edited; if it is not the current one, the answer is 409. "
            "Required in a team."
        ),
    ] = None


class RestoreDocument(Params):
    revision_id: RevisionId


class PromotedView(SavedDocument, kw_only=True):
    promoted: Annotated[bool, Meta(description="False if the newest version has the same text.")]


class DocumentVersionsQuery(Params):
    limit: PageLimit = 50
    before: NumberCursor = None


class VersionAuthor(Struct):
    kind: Annotated[str, Meta(description="`person` or `assistant`")]
    id: str
    run_id: str | UnsetType = UNSET


class VersionView(Struct):
    version: int
    revision_id: str
    author: VersionAuthor
    created_at: datetime
    size: Annotated[int, Meta(description="Bytes of UTF-8.")]


class VersionPage(Struct, omit_defaults=True):
    versions: list[VersionView]
    next: int | None = None


class CompareRevisions(Params, rename={"from_revision": "from", "to_revision": "to"}):
    from_revision: Annotated[
        RevisionId | None, Meta(description="A revision; by default the newest version.")
    ] = None
    to_revision: Annotated[
        RevisionId | None, Meta(description="A revision; by default the current text.")
    ] = None


class DifferenceView(Struct, rename={"from_revision": "from", "to_revision": "to"}):
    from_revision: str | None
    to_revision: str
    diff: Annotated[str, Meta(description="A unified diff; empty if the texts are equal.")]


async def get_document(call: Call) -> DocumentView:
    return _document_view(await call.host.documents.get(call.principal, call.path["canvas_id"]))


async def put_document(call: Call) -> SavedDocument:
    params: PutDocument = call.params
    document = await call.host.documents.put(
        call.principal, call.path["canvas_id"], params.text, params.base_revision_id
    )
    return SavedDocument(**_fields(document))


async def restore_document(call: Call) -> DocumentView:
    canvas_id, revision_id = call.path["canvas_id"], call.params.revision_id
    return _document_view(await call.host.documents.restore(call.principal, canvas_id, revision_id))


async def promote_document(call: Call) -> PromotedView:
    promoted = await call.host.documents.promote(call.principal, call.path["canvas_id"])
    return PromotedView(promoted=promoted.is_new, **_fields(promoted.document))


async def take_control(call: Call) -> DocumentView:
    return _document_view(await call.host.documents.take_control(call.principal, call.path["canvas_id"]))


async def list_versions(call: Call) -> VersionPage:
    params: DocumentVersionsQuery = call.params
    read = partial(call.host.documents.list_versions, call.principal, call.path["canvas_id"])
    limit = params.limit
    page = await read_page(
        read, _version_view, lambda version: version.version_no, start=params.before, limit=limit, step=limit
    )
    return VersionPage(*page)


async def compare_revisions(call: Call) -> DifferenceView:
    params: CompareRevisions = call.params
    difference = await call.host.documents.compare(
        call.principal, call.path["canvas_id"], params.from_revision, params.to_revision
    )
    return DifferenceView(difference.from_revision, difference.to_revision, difference.diff)


def _document_view(document: Document) -> DocumentView:
    return DocumentView(text=document.text, **_fields(document))


def _fields(document: Document) -> dict[str, Any]:
    held = document.live_lease
    return {
        "canvas_id": document.canvas_id,
        "revision_id": document.revision_id,
        "canvas_epoch": document.lease.epoch,
        "version_revision_id": document.version_revision_id or UNSET,
        "lease": UNSET if held is None else LeaseView(held.run_id, held.expires_at),
    }


def _version_view(version: DocumentVersion) -> VersionView:
    author = version.author
    return VersionView(
        version.version_no,
        version.revision_id,
        VersionAuthor(author.kind.value, author.id, author.run_id or UNSET),
        version.created_at,
        version.size,
    )
