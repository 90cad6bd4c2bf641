"""Who may call what has an access: every role and kind of principal, against every access."""

from __future__ import annotations

from itertools import product

import pytest

from easel.core.access import InAccount, OfHost, Public, check_access
from easel.core.principal import ANONYMOUS, Principal, PrincipalKind, Role, as_program
from easel.errors import Forbidden
from easel.ids import AccountId, UserId
from tests.requirements import rule
from tests.support.principals import THE_OWNER

EVERY_KIND = frozenset(PrincipalKind)
ROLES = [Role.VIEWER, Role.MEMBER, Role.ADMIN]


def principal(kind: PrincipalKind, role: Role, *, is_operator: bool = False) -> Principal:
    user_id = UserId("ada") if kind is PrincipalKind.USER else None
    return Principal(AccountId("team"), "a", kind=kind, role=role, is_operator=is_operator, user_id=user_id)


@rule("RS-76")
@pytest.mark.parametrize("needed, held", list(product(ROLES, ROLES)))
def test_role_allows_what_the_roles_before_it_allow(needed: Role, held: Role) -> None:
    access, who = InAccount(needed, EVERY_KIND), principal(PrincipalKind.USER, held)
    if ROLES.index(held) >= ROLES.index(needed):
        check_access(access, who)
    else:
        with pytest.raises(Forbidden, match=f"the role {needed}"):
            check_access(access, who)


@rule("RS-76")
@pytest.mark.parametrize("allowed, kind", list(product(PrincipalKind, PrincipalKind)))
def test_only_the_named_kinds_of_principal_pass(allowed: PrincipalKind, kind: PrincipalKind) -> None:
    who = principal(kind, Role.ADMIN, is_operator=True)
    for access in (InAccount(Role.VIEWER, frozenset({allowed})), OfHost(frozenset({allowed}))):
        if kind is allowed:
            check_access(access, who)
        else:
            with pytest.raises(Forbidden):
                check_access(access, who)


@rule("RS-76")
def test_operator_and_admin_are_two_things() -> None:
    admin = principal(PrincipalKind.USER, Role.ADMIN)
    operator = principal(PrincipalKind.USER, Role.VIEWER, is_operator=True)
    check_access(OfHost(EVERY_KIND), operator)
    with pytest.raises(Forbidden, match="operator"):
        check_access(OfHost(EVERY_KIND), admin)
    with pytest.raises(Forbidden, match="the role admin"):
        check_access(InAccount(Role.ADMIN, EVERY_KIND), operator)


def test_principal_without_a_role_may_only_read() -> None:
    nobody = Principal(AccountId("team"), "a")
    check_access(InAccount(Role.VIEWER, EVERY_KIND), nobody)
    with pytest.raises(Forbidden):
        check_access(InAccount(Role.MEMBER, EVERY_KIND), nobody)
    check_access(Public(), ANONYMOUS)


@pytest.mark.parametrize("kind", [PrincipalKind.AGENT, PrincipalKind.NODE, PrincipalKind.SERVICE])
def test_program_of_an_operator_is_no_operator_and_no_person(kind: PrincipalKind) -> None:
    program = as_program(THE_OWNER, kind)
    assert not program.is_operator
    assert not program.is_person
    assert not program.may_debug
    assert (program.role is Role.VIEWER) == (kind is PrincipalKind.NODE)
