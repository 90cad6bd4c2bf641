"""Access to methods and routes: a role in the account, the operator of the host, or the public.

Owns the roles and the one check that every edge makes before it calls a handler. Does not know methods,
routes or tokens. An access names the kinds of principal too, because a role alone says nothing of whether a
person or a program acts.
"""

from dataclasses import dataclass

from easel.core.principal import Principal, PrincipalKind, Role
from easel.errors import Forbidden
from easel.ids import UserId

_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Public:
    """Anybody may call it, also without a credential."""


@dataclass(frozen=True, slots=True)
class InAccount:
    """A principal of one of these kinds with at least this role in the account."""

    role: Role
    kinds: frozenset[PrincipalKind]


@dataclass(frozen=True, slots=True)
class OfHost:
    """The operator of the host, if the principal is of one of these kinds."""

    kinds: frozenset[PrincipalKind]


Access = Public | InAccount | OfHost


def check_access(access: Access, principal: Principal) -> None:
    """Raise `Forbidden` unless the principal may call what has this access. RS-76"""
    match access:
        case Public():
            return
        case InAccount(role, kinds):
            _check_kind(principal, kinds)
            if _RANKS[principal.role] < _RANKS[role]:
                raise Forbidden(problem=f"this needs the role {role} in the account.")
        case OfHost(kinds):
            _check_kind(principal, kinds)
            if not principal.is_operator:
                raise Forbidden(problem="only an operator of this host may do this.")


def check_may_delete(principal: Principal, what: str, created_by: UserId | None) -> None:
    """Raise `Forbidden` for a member who deletes a thing of another person. RS-76

    A program has the rights of the person who answers for it. Things of Easel itself are left to admins.
    """
    if principal.role is Role.ADMIN or (created_by is not None and created_by == principal.responsible):
        return
    raise Forbidden(
        problem=f"only the person who made this {what}, or an admin of the account, may delete it."
    )


def _check_kind(principal: Principal, kinds: frozenset[PrincipalKind]) -> None:
    if principal.kind in kinds:
        return
    if principal.kind is PrincipalKind.NODE:
        raise Forbidden(problem="a node's token can only connect a node, on /ws.")
    allowed = " or ".join(sorted(kind.value for kind in kinds))
    raise Forbidden(problem=f"the credential must be that of a {allowed}.")
