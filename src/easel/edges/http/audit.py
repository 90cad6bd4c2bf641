"""The audit trail by HTTP, for administrators; and what the edge itself has to tell it."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from easel.core.audit.chain import Link
from easel.core.audit.record import StorageClass, said
from easel.core.principal import ANONYMOUS
from easel.core.stream.log import LAST_CURSOR
from easel.edges.http.calls import COOKIE, Call, json_answer
from easel.edges.http.canvas_policy import without_token
from easel.errors import BadInput, HostError, NotSignedIn, Unavailable
from easel.host.audit import Audit

REFUSED = (403, 421)  # what a guardrail answers
AWAY_SECONDS = 10.0  # a database that stays away is told this often


class ListAudit(Struct):
    action: Annotated[str | None, Meta(description="Only this one, such as sign_in.failed.")] = None
    storage_class: Annotated[
        Literal["ops", "audit"] | None,
        Meta(description="ops: how the machine fares; audit: who did, or was refused, what."),
    ] = None
    since: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="From this time on, such as 2026-11-15T09:00:00Z."),
    ] = None
    until: Annotated[Annotated[datetime, Meta(tz=True)] | None, Meta(description="Before this time.")] = None
    before: Annotated[
        Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None,
        Meta(description="`next` of the page before this one."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class AuditView(Struct):
    seq: int
    at: datetime
    storage_class: str
    action: str
    actor: dict[str, str]
    metadata: dict[str, str]
    hash: Annotated[str, Meta(description="SHA-256 of the hash before it, a line feed and the record.")]
    subject: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class AuditPage(Struct, omit_defaults=True):
    records: list[AuditView]
    next: int | None = None


async def list_audit(call: Call) -> Response:
    asked: ListAudit = call.asked
    found = await call.host.audit.list_records(
        action=asked.action,
        storage_class=StorageClass(asked.storage_class) if asked.storage_class else None,
        since=_in_utc(asked.since, "since"),
        until=_in_utc(asked.until, "until"),
        before=asked.before,
        limit=asked.limit,
    )
    more = found[-1].seq if len(found) == asked.limit else None
    return json_answer(AuditPage([_view(link) for link in found], more))


def _in_utc(at: datetime | None, name: str) -> datetime | None:
    """The first hours of year 1 somewhere are no time at all in UTC, and the last ones of year 9999."""
    try:
        return None if at is None else at.astimezone(UTC)
    except OverflowError:
        raise BadInput(problem=f"{name}: in UTC that is outside the years 1 to 9999.") from None


def _view(link: Link) -> AuditView:
    fields = said(link.record)
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


def tell(audit: Audit, scope: Scope, problem: Exception, reference: str | None) -> None:
    """What a request came to, where that is for operators: what broke, what was refused by whom, a database that is away."""
    request = Request(scope)
    principal = scope["state"].get("principal", ANONYMOUS)
    where = {"method": request.method, "path": without_token(request.url.path), **where_from(request)}
    if not isinstance(problem, HostError):
        audit.record_exception(principal, "http.error", problem, reference=reference, details=where)
    elif problem.http in REFUSED:
        audit.record_throttled(
            principal,
            "guardrail.refused",
            details={**where, "error": problem.code, "problem": problem.message},
        )
    elif isinstance(problem, NotSignedIn):
        if by := _presented(request):
            audit.record_throttled(ANONYMOUS, "sign_in.failed", details={**where, "by": by})
    elif isinstance(problem, Unavailable) and (cause := problem.__cause__) is not None:
        told = {**where, "exception": type(cause).__name__, "message": str(cause)}
        audit.record_throttled(None, "database.unavailable", details=told, every=AWAY_SECONDS)


def where_from(request: Request) -> dict[str, str]:
    """The address at the other end of the connection: behind a proxy, the proxy's."""
    return {"address": request.client.host} if request.client else {}


def _presented(request: Request) -> str | None:
    """What a caller tried to get in with; who shows nothing has not tried."""
    if "authorization" in request.headers or "token" in request.query_params:
        return "token"
    if "token" in request.query_params:
        return "link"
    return "cookie" if COOKIE in request.cookies else None
