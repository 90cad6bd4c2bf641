"""Open the models of users, and what the settings of users need: the host's default model and the secret key.

Owns where the secret key comes from: EASEL_SECRET_KEY, or on SQLite a file in the data folder.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence

from easel.assembly.storage import generated_file, open_admin_store
from easel.core.canvas.actions import Approval
from easel.core.model.choice import Provider
from easel.core.model.settings import (
    DEFAULT_TOKEN_BUDGET,
    ApiKey,
    ModelValues,
    check_base_url,
    needs_key,
    resolve,
    server_of,
)
from easel.host.models.addresses import NOT_PUBLIC, BaseUrls, FindPerson
from easel.host.models.check import ModelCheck, check_model
from easel.host.models.choice import ChosenModels, build_safely
from easel.host.models.settings import UserSettings, rotate
from easel.host.oauth.connections import Connections
from easel.host.ports import SecretCipher
from easel.llm.build import Models
from easel.settings import Settings

KEY_FILE = "secret-key"


def host_model(settings: Settings) -> ModelValues:
    """Return the host's default model, for users who have set none of their own."""
    provider = Provider(settings.provider) if settings.provider else None
    base_url = check_base_url(settings.base_url) if settings.base_url else None
    server = server_of(provider or Provider.SCRIPTED, base_url or "")
    return ModelValues(
        provider=provider,
        model=settings.model or None,
        api_key=ApiKey(settings.api_key, server) if settings.api_key else None,
        base_url=base_url,
        reasoning_effort=settings.reasoning_effort or None,
        approval_by=None if settings.approval_by == Approval.ANYONE else Approval.ANOTHER,
        token_budget=None if settings.token_budget == DEFAULT_TOKEN_BUDGET else settings.token_budget,
    )


def open_cipher(settings: Settings, table: str = "settings") -> SecretCipher:
    """Return the encryption of the secrets in a table.

    On Postgres there is no key unless EASEL_SECRET_KEY is set: instances do not share a data folder. A key in
    the data folder can still read after EASEL_SECRET_KEY was set.
    """
    from easel.stores.encryption import SecretBox

    path = settings.data_folder / KEY_FILE
    key, earlier = settings.secret_key or None, list(settings.earlier_keys)
    if not settings.on_postgres:
        if key is None:
            key = generated_file(path)
        elif path.exists():
            earlier.append(generated_file(path))
    return SecretBox(key, earlier, table=table)


def base_urls(find_person: FindPerson, settings: Settings) -> BaseUrls:
    """Return the rule of which addresses of models persons and teams may use."""
    return BaseUrls(find_person, _resolve_name, allow_private=settings.private_base_urls)


async def _resolve_name(host: str) -> Sequence[str]:
    from easel.fetch.network import resolve_name

    return await resolve_name(host)


def _public_network() -> object:
    """Return the network of requests to addresses that must be public."""
    from httpcore2 import ConnectError

    from easel.fetch.network import CheckedNetwork, resolve_name

    return CheckedNetwork((), resolve_name, lambda host: ConnectError(f"{host}: {NOT_PUBLIC}"))


@contextlib.asynccontextmanager
async def open_models(
    settings: UserSettings, connections: Connections | None
) -> AsyncGenerator[ChosenModels]:
    """Open the models of users; at the end, close their connections."""
    models = Models(public_network=_public_network)
    try:
        yield ChosenModels(settings, models.build_model, models.build_for_check, connections)
    finally:
        await models.close()


async def rotate_secrets(settings: Settings) -> int:
    """Encrypt the stored secrets again with the current secret key. Returns how many there were."""
    async with open_admin_store(settings) as store:
        count = await rotate(store.settings, open_cipher(settings))
        count += await rotate(store.secrets, open_cipher(settings, "secrets"))
        return count + await rotate(store.connections, open_cipher(settings, "auth"))


async def check_host_model(settings: Settings) -> ModelCheck:
    """Make one small request to the host's default model, without a server."""
    choice = resolve(ModelValues(), host_model(settings)).choice
    if needs_key(choice):
        return ModelCheck(is_ok=False, text=f"{choice.provider}: EASEL_API_KEY is not set.")
    models = Models()
    try:
        return await check_model(choice, build_safely(choice, models.build_for_check))
    finally:
        await models.close()
