"""The settings of users: which model they use, and with which key.

Owns who may read and change them, their audit records, and this instance's cache: a change is notified to
every instance, and a cached value is read again after a second in case a notification was lost. A secret is
encrypted before it is stored, shown masked, and never recorded.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from easel.core.canvas.actions import Approval
from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import (
    NAMES,
    SECRET_NAMES,
    ApiKey,
    ModelValues,
    Resolved,
    Source,
    check_value,
    cleared_by,
    mask,
    resolve,
    server_of,
)
from easel.core.model.stored import EncryptedText, StoredSetting
from easel.core.principal import Principal, PrincipalKind, is_shared
from easel.core.stream.notifications import Notification, SettingsChanged
from easel.core.validation import refuse
from easel.errors import BadInput, Forbidden, ModelFailed, SecretsUnavailable
from easel.host.audit.audit import Audit
from easel.host.models.addresses import NOT_PUBLIC, BaseUrls
from easel.host.ports import Notifier, RotatedStore, SecretCipher, SettingStore
from easel.ids import AccountId

CACHE_SECONDS = 1.0
MAX_CACHED = 10_000
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class UserModel:
    """The model of a user. `key_problem`: why the user's own key cannot be read."""

    resolved: Resolved
    own: ModelValues
    key_problem: str | None = None

    def check_key(self) -> None:
        """Raise `SecretsUnavailable` if the user's own key is needed and cannot be read."""
        if self.key_problem is not None and self.resolved.choice.provider is not Provider.SCRIPTED:
            raise SecretsUnavailable(problem=self.key_problem)


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """The settings as their user may see them: the key is masked."""

    values: Mapping[str, str | int | None]
    sources: Mapping[str, str]
    note: str | None


class _StoredKey(msgspec.Struct):
    """The text that is encrypted: the key, and the server that it was set for."""

    key: str
    server: str


class UserSettings:
    def __init__(
        self,
        store: SettingStore,
        cipher: SecretCipher,
        notifier: Notifier,
        audit: Audit,
        host: ModelValues,
        *,
        base_urls: BaseUrls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._notifier = notifier
        self._audit = audit
        self._host = host
        self._base_urls = base_urls
        self._clock = clock
        self._cache: dict[AccountId, tuple[float, UserModel]] = {}
        self._change_count = 0  # a read that began before a change must not be cached after it
        notifier.listen(self._on_notification)

    async def get(self, principal: Principal) -> ShownSettings:
        check_principal(principal)
        return _to_shown(await self._read(principal.account_id))

    async def change(self, principal: Principal, changes: Mapping[str, Any]) -> ShownSettings:
        """Change the named settings of the principal's user; None clears one. Returns all settings.

        A change of the provider to another vendor also clears the model and the address, unless named.
        """
        check_principal(principal)
        checked = {
            name: None if value is None else check_value(name, value) for name, value in changes.items()
        }
        if checked.get("approval_by") == Approval.ANOTHER and not is_shared(principal):
            refuse("approval_by", "cannot be `another` in your own account: there is no other person.")
        account_id = principal.account_id
        if (base_url := checked.get("base_url")) is not None and not (
            await self._base_urls.may_be_private(account_id) or await self._base_urls.is_public(base_url)
        ):
            refuse("base_url", NOT_PUBLIC)
        own = (await self._read(account_id)).own
        cleared = cleared_by(own, self._host, checked)
        checked |= dict.fromkeys(cleared)
        stored: dict[str, StoredSetting | None] = {**checked}
        if (key := checked.get("api_key")) is not None:
            stored["api_key"] = self._encrypt(account_id, key, _with_changes(own, checked))
        if stored:
            await self._store.change(account_id, stored)
            self._forget(account_id)
            self._notifier.notify(SettingsChanged(account_id))
            await self._audit.record(principal, "settings.changed", details=_details(checked))
        return _to_shown(await self._read(account_id))

    async def find_model(self, account_id: AccountId) -> UserModel:
        """Return the model of the user, at most a second old."""
        cached = self._cache.get(account_id)
        if cached is not None and self._clock() - cached[0] < CACHE_SECONDS:
            return cached[1]
        read_at, change_count = self._clock(), self._change_count
        found = await self._read(account_id)
        if change_count == self._change_count:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[account_id] = (read_at, found)
        return found

    async def check_address(self, choice: ModelChoice) -> None:
        """Raise `ModelFailed` if the address must be public and its name leads to another one now."""
        if choice.is_public_only and not await self._base_urls.is_public(choice.base_url):
            raise ModelFailed(reason=NOT_PUBLIC)

    async def find_approval(self, account_id: AccountId) -> Approval:
        """Return who may approve the calls of a team, at most a second old. RS-77"""
        return (await self.find_model(account_id)).resolved.approval_by

    async def _read(self, account_id: AccountId) -> UserModel:
        rows = await self._store.read(account_id)
        key, problem = None, None
        if isinstance(secret := rows.get("api_key"), EncryptedText):
            try:
                stored = msgspec.json.decode(
                    self._cipher.decrypt(account_id, "api_key", secret), type=_StoredKey
                )
                key = ApiKey(stored.key, stored.server)
            except SecretsUnavailable as found:
                problem = found.message
        own = replace(_from_rows(rows), api_key=key)
        resolved = resolve(own, self._host)
        if resolved.sources["base_url"] is Source.USER and not await self._base_urls.may_be_private(
            account_id
        ):
            resolved = replace(resolved, choice=replace(resolved.choice, is_public_only=True))
        return UserModel(resolved, own, problem)

    def _encrypt(self, account_id: AccountId, key: str, after: ModelValues) -> EncryptedText:
        choice = resolve(after, self._host).choice
        if choice.provider is Provider.SCRIPTED:
            refuse("api_key", "belongs to a provider; set `provider` before it, or in the same request.")
        server = server_of(choice.provider, choice.base_url)
        text = msgspec.json.encode(_StoredKey(key, server)).decode()
        return self._cipher.encrypt(account_id, "api_key", text)

    def _forget(self, account_id: AccountId) -> None:
        self._change_count += 1
        self._cache.pop(account_id, None)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, SettingsChanged):
            self._forget(notification.account_id)


async def rotate(store: RotatedStore, cipher: SecretCipher) -> int:
    """Encrypt the secrets of earlier keys again with the current key. Returns how many there were."""
    key_id = cipher.current_key_id
    if key_id is None:
        raise SecretsUnavailable(problem="EASEL_SECRET_KEY must be set: there is no key to rotate to.")
    count = 0
    for account_id, name, secret in await store.list_secrets(key_id):
        new = cipher.encrypt(account_id, name, cipher.decrypt(account_id, name, secret))
        count += await store.replace_secret(account_id, name, secret, new)
    return count


def check_principal(principal: Principal) -> None:
    """Raise `Forbidden` for an agent and for a node: the settings decide where keys are sent. RX-54"""
    if principal.kind not in (PrincipalKind.USER, PrincipalKind.SERVICE):
        raise Forbidden(problem="only a person or a service can read and change settings.")


def _from_rows(rows: Mapping[str, StoredSetting]) -> ModelValues:
    """Return the stored values without the key. A value that this version refuses counts as not set."""
    values: dict[str, Any] = {}
    for name in NAMES:
        text = rows.get(name)
        if name in SECRET_NAMES or not isinstance(text, str):
            continue
        try:
            values[name] = check_value(name, text)
        except BadInput:
            continue
    return _with_changes(ModelValues(), values)


def _with_changes(values: ModelValues, changes: Mapping[str, str | None]) -> ModelValues:
    """Return the values after checked changes, without a new key."""
    typed: dict[str, Any] = {name: value for name, value in changes.items() if name not in SECRET_NAMES}
    if typed.get("provider") is not None:
        typed["provider"] = Provider(typed["provider"])
    if typed.get("token_budget") is not None:
        typed["token_budget"] = int(typed["token_budget"])
    if typed.get("approval_by") is not None:
        typed["approval_by"] = Approval(typed["approval_by"])
    return replace(values, **typed)


def _to_shown(model: UserModel) -> ShownSettings:
    choice = model.resolved.choice
    sources = {name: source.value for name, source in model.resolved.sources.items()}
    key, note = _to_shown_key(model), model.resolved.note
    if model.key_problem is not None:
        key, note, sources["api_key"] = UNREADABLE, model.key_problem, "user"
    values: dict[str, str | int | None] = {
        "provider": choice.provider.value,
        "model": choice.model,
        "api_key": key,
        "base_url": choice.base_url or None,
        "reasoning_effort": choice.reasoning_effort or None,
        "token_budget": choice.token_budget,
        "approval_by": model.resolved.approval_by.value,
    }
    return ShownSettings(values, sources, note)


def _to_shown_key(model: UserModel) -> str | None:
    """Return what the user may see of the key: of the host's only that it is set."""
    key = model.resolved.choice.api_key
    if key and model.resolved.sources["api_key"] is Source.HOST:
        return "set"
    return mask(key) if key else None


def _details(changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the details of an audit record: every name, and the values that are not secret."""
    names = {"changed": sorted(changes)}
    return {**names, **{name: value for name, value in changes.items() if name not in SECRET_NAMES}}
