"""Deleting an account: audited, and never that of the host's operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.errors import BadInput, NotFound
from easel.host.auth.accounts import Accounts
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness


@rule("RS-76")
async def test_deleted_account_is_marked_once_and_audited(harness: RunHarness) -> None:
    accounts = Accounts(harness.database.accounts, harness.audit)
    await harness.sql("insert into accounts (account_id, kind) values ('team', 'team')")
    await accounts.delete("team")
    for missing in ("team", "nobody"):
        with pytest.raises(NotFound):
            await accounts.delete(missing)
    records = await harness.database.audit.list_records(
        action="account.deleted", storage_class=None, since=None, until=None, before=None, limit=10
    )
    assert ['"subject":"team"' in link.record for link in records] == [True]


@rule("RS-76")
async def test_account_of_the_operator_is_not_deleted(harness: RunHarness) -> None:
    accounts = Accounts(harness.database.accounts, harness.audit)
    with pytest.raises(BadInput, match="operator"):
        await accounts.delete("owner")
    assert await harness.database.deletions.list_accounts() == []
