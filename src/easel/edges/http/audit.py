"""The audit trail over HTTP, for the admins of each account, and that of the host for its operators."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.audit.chain import Link
from easel.core.audit.record import StorageClass, parse_record
from easel.edges.decoding import Params
from easel.edges.http.calls import Call
from easel.edges.http.wire import NumberCursor, PageLimit
from easel.edges.paging import read_page
from easel.errors import BadInput


class ListAudit(Params):
    action: Annotated[
        str | None, Meta(description="Only records of this action, such as sign_in.failed.")
    ] = None
    storage_class: Annotated[
        Literal["ops", "audit"] | None,
        Meta(description="ops: the state of the system; audit: actions of principals, and refusals."),
    ] = None
    since: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="From this time on, such as 2026-11-15T09:00:00Z."),
    ] = None
    until: Annotated[Annotated[datetime, Meta(tz=True)] | None, Meta(description="Before this time.")] = None
    before: NumberCursor = None
    limit: PageLimit = 50


class AuditView(Struct):
    seq: int
    at: datetime
    storage_class: str
    action: str
    actor: dict[str, str]
    metadata: dict[str, str]
    hash: Annotated[str, Meta(description="SHA-256 of the previous hash, a line feed and the record.")]
    subject: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class AuditPage(Struct, omit_defaults=True):
    records: list[AuditView]
    next: int | None = None


async def list_audit(call: Call) -> AuditPage:
    params: ListAudit = call.params

    async def read(before: int | None, count: int) -> Sequence[Link]:
        return await call.host.audit.list_records(
            call.principal,
            action=params.action,
            storage_class=StorageClass(params.storage_class) if params.storage_class else None,
            since=_in_utc(params.since, "since"),
            until=_in_utc(params.until, "until"),
            before=before,
            limit=count,
        )

    limit = params.limit
    return AuditPage(
        *await read_page(read, _view, lambda link: link.seq, start=params.before, limit=limit, step=limit)
    )


def _in_utc(at: datetime | None, name: str) -> datetime | None:
    """Convert to UTC. Raises BadInput for a time that UTC cannot represent."""
    try:
        return None if at is None else at.astimezone(UTC)
    except OverflowError:
        raise BadInput(problem=f"{name} must be within the years 1 to 9999 in UTC.") from None


def _view(link: Link) -> AuditView:
    fields = parse_record(link.record)
    return AuditView(
        seq=link.seq,
        at=link.at,
        storage_class=link.storage_class,
        action=link.action,
        actor=fields.get("actor", {}),
        metadata=fields.get("metadata", {}),
        hash=link.hash,
        subject=fields.get("subject", UNSET),
        details=fields.get("details", UNSET),
    )
