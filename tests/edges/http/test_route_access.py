"""Access to every route: made-up principals of every kind and role, against a table written by hand."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.access import Public
from easel.core.principal import Principal, PrincipalKind, Role
from easel.edges.http.calls import Call, Endpoint, Row
from easel.edges.http.routes import ROUTES, SOCKETS
from easel.edges.http.sockets import SocketCall, SocketEndpoint, SocketRow
from easel.errors import Forbidden, NotSignedIn
from easel.ids import AccountId, UserId
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

# The routes by the role that a person or a service needs in the account; `in person`: not a service.
EXPECTED = {
    "viewer": """
        GET /api/runs
        GET /api/runs/{run_id}
        GET /api/runs/{run_id}/events
        GET /api/runs/{run_id}/whiteboard
        GET /api/runs/{run_id}/blackboard
        GET /api/artifacts/{artifact_id}
        GET /sse/run/{run_id}
        GET /sse/canvas/{canvas_id}
        GET /api/sessions
        GET /api/sessions/{session_id}
        GET /api/sessions/{session_id}/messages
        POST /api/rpc
        GET /api/documents/{canvas_id}
        GET /api/documents/{canvas_id}/history
        GET /api/documents/{canvas_id}/diff
        GET /api/tools
        GET /api/me
        GET /api/members
        GET /openapi.json
        GET /api/docs
        WS /ws/chat/{thread_id}
    """,
    "viewer in person": """
        POST /api/me/password
        POST /api/me/leave
    """,
    "member": """
        POST /api/runs
        POST /api/runs/{run_id}/cancel
        POST /api/runs/{run_id}/whiteboard
        POST /api/runs/{run_id}/blackboard
        POST /api/artifacts
        POST /api/sessions
        PATCH /api/sessions/{session_id}
        DELETE /api/sessions/{session_id}
        POST /api/chat/{session_id}
        POST /api/canvases/{canvas_id}/snapshots
        PUT /api/documents/{canvas_id}
        POST /api/documents/{canvas_id}/restore
        POST /api/documents/{canvas_id}/promote
        POST /api/documents/{canvas_id}/take-control
    """,
    "member in person": """
        POST /api/tokens
        GET /api/tokens
        DELETE /api/tokens/{token_id}
    """,
    "admin": """
        GET /api/settings
        PUT /api/settings
        POST /api/settings/check
        GET /api/audit
    """,
    "admin in person": """
        GET /api/secrets
        PUT /api/secrets/{name}
        DELETE /api/secrets/{name}
        GET /api/oauth
        POST /api/oauth/{provider}/start
        DELETE /api/oauth/{provider}
        PUT /api/members/{name}
        DELETE /api/members/{name}
    """,
    "operator": """
        POST /api/people
        GET /api/people
        PATCH /api/people/{name}
        DELETE /api/people/{name}
        POST /api/people/{name}/invitations
        POST /api/teams
        GET /api/teams
        DELETE /api/teams/{name}
        GET /metrics
    """,
    "anyone": """
        GET /healthz
        GET /readyz
        GET /
        POST /sign-in
        GET /sign-in/openid
        GET /sign-in/openid/callback
        POST /invitation/openid
        GET /invitation
        POST /invitation
        POST /sign-out
        GET /api/oauth/{provider}/callback
        GET /auth/callback
        GET /canvas/{agent_id}/{canvas_id}
        GET /canvas-view/{token}/{file:path}
        GET /ui/{file}
    """,
}
RANKS = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2}
REQUESTS: dict[str, Row | SocketRow] = {
    **{f"{row.method} {row.path}": row for row in ROUTES},
    **{f"WS {row.path}": row for row in SOCKETS},
}
WHO = {name: who for who, names in EXPECTED.items() for name in map(str.strip, names.strip().splitlines())}


def may_call(who: str, principal: Principal) -> bool:
    is_person, rank = principal.kind is PrincipalKind.USER, RANKS[principal.role]
    is_caller = is_person or principal.kind is PrincipalKind.SERVICE
    return {
        "anyone": True,
        "viewer": is_caller,
        "viewer in person": is_person,
        "member": is_caller and rank >= RANKS[Role.MEMBER],
        "member in person": is_person and rank >= RANKS[Role.MEMBER],
        "admin": is_caller and rank >= RANKS[Role.ADMIN],
        "admin in person": is_person and rank >= RANKS[Role.ADMIN],
        "operator": is_person and principal.is_operator,
    }[who]


def made_up_principals() -> Iterator[Principal]:
    for kind, role, is_operator in product(PrincipalKind, Role, (False, True)):
        user_id = UserId("ada") if kind is PrincipalKind.USER else None
        yield Principal(
            AccountId("team"), "a", kind=kind, role=role, is_operator=is_operator, user_id=user_id
        )


def host_of(principal: Principal | None) -> Any:
    """Return services that authenticate everybody as this principal, and do nothing else."""

    async def authenticate(*_: object) -> Principal | None:
        return principal

    return SimpleNamespace(
        credentials=SimpleNamespace(authenticate=authenticate),
        usage=SimpleNamespace(count_request=lambda _: None),
        revocation=SimpleNamespace(while_valid=lambda _: contextlib.nullcontext()),
    )


async def send_request(name: str, principal: Principal | None) -> Principal:
    """Send a request to the endpoint of the row. Returns the principal that its handler is given."""
    row, host, given = REQUESTS[name], host_of(principal), list[Principal]()

    async def handle(call: Call | SocketCall) -> None:
        given.append(call.principal)

    async def nothing(*_: object) -> Any: ...

    kind = "websocket" if isinstance(row, SocketRow) else "http"
    scope: dict[str, Any] = {
        "type": kind, "method": name.partition(" ")[0], "path": row.path, "path_params": {},
        "query_string": b"", "headers": [(b"authorization", b"Bearer token")], "state": {},
    }  # fmt: skip
    if isinstance(row, SocketRow):
        await SocketEndpoint(replace(row, handler=handle), host)(scope, nothing, nothing)
    else:
        plain = replace(row, handler=handle, body=None, query=None, response="text/plain")
        await Endpoint(plain, host, 0)(scope, nothing, nothing)
    [seen] = given
    return seen


def test_every_route_is_in_the_table() -> None:
    assert WHO.keys() == REQUESTS.keys()


@rule("RS-76")
@pytest.mark.parametrize("name", REQUESTS)
async def test_route_is_open_to_exactly_the_principals_of_the_table(name: str) -> None:
    for principal in made_up_principals():
        if may_call(WHO[name], principal):
            seen = await send_request(name, principal)
            is_public_page = isinstance(REQUESTS[name].access, Public)
            assert is_public_page or seen is principal
        else:
            with pytest.raises(Forbidden):
                await send_request(name, principal)


@rule("RS-76")
@pytest.mark.parametrize("name", REQUESTS)
async def test_request_without_a_valid_credential_reaches_public_routes_only(name: str) -> None:
    if WHO[name] == "anyone":
        assert not (await send_request(name, None)).account_id
    else:
        with pytest.raises(NotSignedIn):
            await send_request(name, None)
