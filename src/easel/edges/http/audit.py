"""The audit trail over HTTP, for administrators; and the audit records of the HTTP edge itself."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from easel.core.audit.chain import Link
from easel.core.audit.record import StorageClass, parse_record
from easel.core.principal import ANONYMOUS
from easel.edges.decoding import Params
from easel.edges.http.calls import Call, json_response
from easel.edges.http.canvas_policy import redact_token
from easel.edges.http.wire import NumberCursor, PageLimit
from easel.edges.paging import read_page
from easel.errors import BadInput, HostError, NotSignedIn, Unavailable
from easel.host.audit.audit import Audit

REFUSED = (403, 421)  # statuses of requests that a guardrail refused
UNAVAILABLE_SECONDS = 10.0  # minimum time between two records of an unavailable database


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


async def list_audit(call: Call) -> Response:
    params: ListAudit = call.params

    async def read(before: int | None, count: int) -> Sequence[Link]:
        return await call.host.audit.list_records(
            action=params.action,
            storage_class=StorageClass(params.storage_class) if params.storage_class else None,
            since=_in_utc(params.since, "since"),
            until=_in_utc(params.until, "until"),
            before=before,
            limit=count,
        )

    records, more = await read_page(
        read,
        to_view=_view,
        position=lambda link: link.seq,
        start=params.before,
        limit=params.limit,
        step=params.limit,
    )
    return json_response(AuditPage(records, more))


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


def record_problem(audit: Audit, scope: Scope, problem: Exception, reference: str | None) -> None:
    """Record an internal error, a refusal, a failed sign-in or an unavailable database."""
    request = Request(scope)
    principal = scope["state"].get("principal", ANONYMOUS)
    details = {"method": request.method, "path": redact_token(request.url.path), **client_details(request)}
    if not isinstance(problem, HostError):
        audit.record_exception(principal, "http.error", problem, reference=reference, details=details)
    elif problem.http in REFUSED:
        audit.record_throttled(
            principal,
            "guardrail.refused",
            details={**details, "error": problem.code, "problem": problem.message},
        )
    elif isinstance(problem, NotSignedIn):
        if credential := _credential_kind(request):
            audit.record_throttled(ANONYMOUS, "sign_in.failed", details={**details, "by": credential})
    elif isinstance(problem, Unavailable) and (cause := problem.__cause__) is not None:
        details |= {"exception": type(cause).__name__, "message": str(cause)}
        audit.record_throttled(None, "database.unavailable", details=details, every=UNAVAILABLE_SECONDS)


def client_details(request: Request) -> dict[str, str]:
    """Return the address of the client; behind a proxy this is the address of the proxy."""
    return {"address": request.client.host} if request.client else {}


def _credential_kind(request: Request) -> str | None:
    """Return the kind of credential that a request presented, or None."""
    if "authorization" in request.headers or "token" in request.query_params:
        return "token"
    return "cookie" if request.state.cookie.name in request.cookies else None
