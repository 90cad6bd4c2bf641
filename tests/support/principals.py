"""Persons: the owner, as the owner's token authenticates, and others in their own accounts."""

from __future__ import annotations

from easel.core.principal import Principal, Role
from easel.ids import OWNER, AccountId, UserId

THE_OWNER = Principal(
    OWNER, "owner", role=Role.ADMIN, is_operator=True, user_id=UserId(OWNER), token_id=f"tok_{0:026}"
)


def person(account_id: str, name: str) -> Principal:
    return Principal(AccountId(account_id), name, role=Role.ADMIN, user_id=UserId(account_id))
