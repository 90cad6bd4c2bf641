"""Build models, and open what the settings of users need: the host's default model and the secret key.

Owns where the secret key comes from: EASEL_SECRET_KEY, or on SQLite a file in the data folder.
"""

from easel.assembly.storage import generated_file
from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import (
    DEFAULT_TOKEN_BUDGET,
    ApiKey,
    ModelValues,
    check_base_url,
    server_of,
)
from easel.errors import ModelFailed
from easel.host.ports import Model, SecretCipher
from easel.llm.scripted import ScriptedModel
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
        token_budget=None if settings.token_budget == DEFAULT_TOKEN_BUDGET else settings.token_budget,
    )


def open_cipher(settings: Settings) -> SecretCipher:
    """Return the encryption of secrets.

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
    return SecretBox(key, earlier)


def build_model(choice: ModelChoice) -> Model:
    """Build a model. The library of a provider is imported when it is first used."""
    if choice.provider is Provider.SCRIPTED:
        return ScriptedModel()
    raise ModelFailed(reason=f"{choice.provider} is not built yet")


def build_for_check(choice: ModelChoice) -> Model:
    """Build a model that does not repeat a failed request."""
    return build_model(choice)
