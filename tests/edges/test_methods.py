"""The table of methods: who may call each, and handlers with the params and result of their row."""

from __future__ import annotations

import inspect
import itertools
from types import SimpleNamespace
from typing import Any, get_type_hints
from unittest.mock import Mock

import pytest

from easel.core.access import check_access
from easel.core.principal import Principal, PrincipalKind, Role
from easel.edges.caller import Caller
from easel.edges.methods import CONNECTION_METHODS, METHODS, dispatch
from easel.errors import Forbidden
from easel.ids import AccountId, UserId
from tests.requirements import rule

READ = {"viewer user", "viewer agent", "viewer service"}
CHANGE = {"member user", "member agent", "member service"}
PRESS = {"member user", "member service"}
DECIDE = {"member user"}
OF_NODE = {"viewer node"}
ANYBODY = {"viewer user", "viewer agent", "viewer service", "viewer node"}

# The lowest role and the kind of principal that may call the method; a higher role of that kind may, too.
EXPECTED = {
    "canvas.list": READ,
    "canvas.get": READ,
    "canvas.create": CHANGE,
    "canvas.upsert": CHANGE,
    "canvas.patch": CHANGE,
    "canvas.delete": CHANGE,
    "canvas.action": PRESS,
    "canvas.confirm": DECIDE,
    "canvas.cancel": PRESS,
    "canvas.accept": DECIDE,
    "canvas.confirmations": READ,
    "canvas.records": READ,
    "canvas.versions": READ,
    "canvas.restore": CHANGE,
    "canvas.input": CHANGE,
    "canvas.report": READ,
    "canvas.open": READ,
    "canvas.close": READ,
    "canvas.asset.put": CHANGE,
    "canvas.asset.get": READ,
    "canvas.asset.list": READ,
    "canvas.asset.delete": CHANGE,
    "tools.list": READ,
    "tool.invoke": DECIDE,
    "nodes.list": READ,
    "ping": READ,
    "connect": ANYBODY,
    "canvas.subscribe": READ,
    "canvas.unsubscribe": READ,
    "tool.result": OF_NODE,
    "tool.progress": OF_NODE,
}
RANKS = [Role.VIEWER, Role.MEMBER, Role.ADMIN]
ROWS: dict[str, Any] = {**METHODS, **CONNECTION_METHODS}


def test_every_method_is_in_one_table() -> None:
    assert ROWS.keys() == EXPECTED.keys()
    assert not METHODS.keys() & CONNECTION_METHODS.keys()


@rule("RS-76", "RS-59")
@pytest.mark.parametrize("method", EXPECTED)
def test_method_may_be_called_by_its_roles_and_kinds_only(method: str) -> None:
    for role, kind, is_operator in itertools.product(RANKS, PrincipalKind, (False, True)):
        person = UserId("ada") if kind is PrincipalKind.USER else None
        principal = Principal(AccountId("a"), "p", kind, role, is_operator=is_operator, user_id=person)
        lower = RANKS[: RANKS.index(role) + 1]
        is_allowed = any(f"{each} {kind}" in EXPECTED[method] for each in lower)
        try:
            check_access(ROWS[method].access, principal)
        except Forbidden:
            assert not is_allowed, principal
        else:
            assert is_allowed, principal


@rule("RS-76", "RS-59")
@pytest.mark.parametrize("method", METHODS)
async def test_refused_call_reaches_no_handler_and_is_recorded(method: str) -> None:
    services: Any = SimpleNamespace(audit=Mock())
    node = Principal(AccountId("a"), "n", PrincipalKind.NODE, Role.ADMIN, is_operator=True)
    with pytest.raises(Forbidden):
        await dispatch(Caller(services, node), method, {})
    services.audit.record_throttled.assert_called_once()


@pytest.mark.parametrize("method", METHODS)
def test_handler_has_the_params_and_the_result_of_its_row(method: str) -> None:
    row = METHODS[method]
    hints = get_type_hints(row.handler)
    *_, given = inspect.signature(row.handler).parameters
    assert (hints[given], hints["return"]) == (row.params, row.result)


def test_row_without_access_is_refused() -> None:
    row: Any = METHODS["ping"]
    with pytest.raises(TypeError, match="access"):
        type(row)(params=row.params, result=row.result, handler=row.handler)
