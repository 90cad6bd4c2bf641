"""Which model a user's run uses.

Owns that no error of a model contains its key. The settings are read at each step, so that a change takes
effect at the next one.
"""

import contextlib
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import cast

from easel.core.audit.redaction import Redaction
from easel.core.model.choice import MIN_MASKED_KEY, ModelChoice
from easel.core.model.settings import Source, needs_key
from easel.core.principal import Principal
from easel.core.run.conversation import Conversation, Part
from easel.core.tool.definition import ToolDefinition
from easel.errors import HostError, ModelFailed
from easel.host.models.check import ModelCheck, check_model
from easel.host.models.settings import UserSettings, check_principal
from easel.host.oauth.connections import Connections
from easel.host.ports import Model
from easel.ids import AccountId

BuildModel = Callable[[ModelChoice], Model]


class ChosenModels:
    """The `ModelSource` of the settings of users."""

    def __init__(
        self,
        settings: UserSettings,
        build: BuildModel,
        build_for_check: BuildModel | None = None,
        connections: Connections | None = None,
    ) -> None:
        """Build models with `build`, which must be cheap for a choice that it has built before.

        `build_for_check` builds a model that does not repeat a failed request. `connections` are those to the
        providers that this host describes, if any.
        """
        self._settings = settings
        self._connections = connections
        self._build = build
        self._build_for_check = build_for_check or build

    async def choose(self, account_id: AccountId) -> tuple[ModelChoice, Model]:
        """Return the model of the user. Raises `ModelFailed` or `SecretsUnavailable` without its key."""
        choice = await self._find_choice(account_id)
        return choice, build_safely(choice, self._build)

    async def check(self, principal: Principal) -> ModelCheck:
        """Make one small request to the model of the principal's user."""
        check_principal(principal)
        try:
            choice = await self._find_choice(principal.account_id)
        except HostError as problem:
            return ModelCheck(is_ok=False, text=problem.message)
        return await check_model(choice, build_safely(choice, self._build_for_check))

    async def _find_choice(self, account_id: AccountId) -> ModelChoice:
        found = await self._settings.find_model(account_id)
        found.check_key()
        choice, connections = found.resolved.choice, self._connections
        # A key of the account's own is used before its connection, and that before the host's key.
        if connections is not None and found.resolved.sources["api_key"] is not Source.USER:
            token = await connections.find_key(account_id, choice)
            choice = choice if token is None else replace(choice, api_key=token)
        if needs_key(choice):
            provider = None if connections is None else connections.find_provider(choice)
            raise ModelFailed(reason=found.resolved.note or missing_key(choice, provider))
        await self._settings.check_address(choice)
        return choice


def missing_key(choice: ModelChoice, provider: str | None = None) -> str:
    connect = "" if provider is None else f"connect {provider} (POST /api/oauth/{provider}/start), or "
    return (
        f"no API key is set for {choice.provider}; {connect}set it with `easel settings set api_key`, on the "
        "home page under Model, or for all users with EASEL_API_KEY."
    )


# -- errors without the key ----------------------------------------------------------------------------------


def build_safely(choice: ModelChoice, build: BuildModel) -> Model:
    """Build the model of a choice, so that none of its errors contains the key."""
    model = build(choice)
    is_masked = len(choice.api_key) >= MIN_MASKED_KEY
    return _RedactedModel(model, Redaction([choice.api_key])) if is_masked else model


class _RedactedModel:
    """A model whose errors are without its key: a provider may repeat the request in its error."""

    def __init__(self, model: Model, redact: Redaction) -> None:
        self._model = model
        self._redact = redact

    @property
    def is_remote(self) -> bool:
        return self._model.is_remote

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        parts = cast("AsyncGenerator[Part]", self._model.reply(conversation, tools))
        async with contextlib.aclosing(parts):
            try:
                async for part in parts:
                    yield part
            except Exception as problem:
                clean = self._clean(problem)
                if clean is problem:
                    raise
                raise clean from None

    def _clean(self, problem: Exception) -> Exception:
        """Return the error, or one in its place if its text or a cause contains a secret."""
        text = "".join(traceback.format_exception(problem))
        if self._redact(text) == text:
            return problem
        if not isinstance(problem, HostError):
            return ModelFailed(reason=self._redact(f"{type(problem).__name__}: {problem}"))
        details = {name: self._redact(str(value)) for name, value in problem.details.items()}
        return type(problem).with_message(self._redact(problem.message), **details)
