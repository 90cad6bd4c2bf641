"""Accounts: who owns rows. Deleting one disables it at once; its rows and blobs are purged later.

Does not know how they are purged: see `host/deletions.py`.
"""

from easel.core.principal import Principal
from easel.errors import BadInput, NotFound
from easel.host.audit.audit import Audit
from easel.host.auth.tokens import OPERATOR
from easel.host.ports import AccountStore
from easel.ids import AccountId


class Accounts:
    def __init__(self, store: AccountStore, audit: Audit) -> None:
        self._store = store
        self._audit = audit

    async def delete(self, account_id: str, by: Principal = OPERATOR) -> None:
        """Delete an account with all that it owns. The host must keep its operator. RS-76"""
        person = await self._store.find_person(AccountId(account_id))
        if person is not None and person.is_operator:
            raise BadInput(problem="The account of the host's operator must not be deleted.")
        if not await self._store.mark_deleted(AccountId(account_id)):
            raise NotFound(what="account", id=account_id[:100])
        await self._audit.record(by, "account.deleted", subject=account_id)
