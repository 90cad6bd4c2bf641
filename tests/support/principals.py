"""Persons: the owner, as the owner's token authenticates, and others in their own accounts."""

from __future__ import annotations

from easel.core.principal import MAIN_AGENT, Principal, PrincipalKind, Role
from easel.ids import OWNER, AccountId, RunId, UserId

THE_OWNER = Principal(
    OWNER, "owner", role=Role.ADMIN, is_operator=True, user_id=UserId(OWNER), token_id=f"tok_{0:026}"
)


def person(account_id: str, name: str) -> Principal:
    return Principal(AccountId(account_id), name, role=Role.ADMIN, user_id=UserId(account_id))


def agent_of(account_id: AccountId, run_id: RunId) -> Principal:
    """Return the agent of a run that Easel itself started."""
    return Principal(account_id, MAIN_AGENT, PrincipalKind.AGENT, Role.MEMBER, run_id=run_id)
