"""The secrets of users: set, listed and deleted by a person, and resolved when a tool is called. RS-66

Owns who may change them and their audit records, which have names only. No method but `resolve` returns a
value, and only the code that calls a tool or a node uses it. Nothing is cached: a changed secret is used from
the next call on.
"""

from collections.abc import Collection, Mapping, Sequence

from easel.core.principal import Principal
from easel.core.secret.secret import MAX_SECRETS, SecretInfo, check_secret_name, check_secret_value
from easel.errors import BadInput, Forbidden, NotFound
from easel.host.audit import Audit
from easel.host.ports import SecretCipher, SecretStore
from easel.ids import AccountId


class Secrets:
    def __init__(self, store: SecretStore, cipher: SecretCipher, audit: Audit) -> None:
        self._store = store
        self._cipher = cipher
        self._audit = audit

    async def list_names(self, principal: Principal, after: str, limit: int) -> list[SecretInfo]:
        """Return the names of the person's secrets after the name `after`, in their order."""
        _check_person(principal)
        return await self._store.list_names(principal.account_id, after, limit)

    async def set(self, principal: Principal, name: str, value: str) -> None:
        """Store or replace a secret. Raises `BadInput` at the limit, and `SecretsUnavailable`."""
        _check_person(principal)
        check_secret_name(name)
        encrypted = self._cipher.encrypt(principal.account_id, name, check_secret_value(value))
        if not await self._store.set(principal.account_id, name, encrypted, MAX_SECRETS):
            raise BadInput(problem=f"You have {MAX_SECRETS} secrets, which is the limit; delete some first.")
        await self._audit.record(principal, "secret.set", subject=name)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a secret. Raises `NotFound`."""
        _check_person(principal)
        if not await self._store.delete(principal.account_id, name):
            raise NotFound(what="secret", id=name[:100])
        await self._audit.record(principal, "secret.deleted", subject=name)

    async def find_missing(self, account_id: AccountId, names: Collection[str]) -> list[str]:
        """Return the names that no secret of this user has."""
        return sorted(set(names) - (await self._store.read(account_id, names)).keys()) if names else []

    async def resolve(self, account_id: AccountId, names: Collection[str]) -> Mapping[str, str]:
        """Return the values of these secrets.

        Raises `BadInput` for one that does not exist, and `SecretsUnavailable` for one that cannot be read.
        """
        if not names:
            return {}
        stored = await self._store.read(account_id, names)
        if missing := sorted(set(names) - stored.keys()):
            raise BadInput(problem=describe_missing(missing))
        return {name: self._cipher.decrypt(account_id, name, secret) for name, secret in stored.items()}


def describe_missing(names: Sequence[str]) -> str:
    """Return the message for secrets that do not exist, with the command that sets them."""
    commands = ", ".join(f"`easel secret set {name}`" for name in names)
    which = f"The secret {names[0]} does" if len(names) == 1 else f"The secrets {', '.join(names)} do"
    return f"{which} not exist: run {commands}."


def _check_person(principal: Principal) -> None:
    """Raise `Forbidden` unless the principal is a person: no agent, node or service has a use for names."""
    if not principal.is_person:
        raise Forbidden(problem="only a person can set, list and delete secrets.")
