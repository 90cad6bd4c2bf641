"""Which model a user's run uses. Owns the source that always returns the same model."""

from easel.core.model.choice import ModelChoice, Provider
from easel.host.ports import Model
from easel.ids import UserId


class FixedModel:
    """A `ModelSource` with one model for every user."""

    def __init__(self, model: Model, choice: ModelChoice | None = None) -> None:
        self._model = model
        self._choice = choice or ModelChoice(Provider.SCRIPTED, "scripted")

    async def choose(self, user_id: UserId) -> tuple[ModelChoice, Model]:  # noqa: ARG002
        return self._choice, self._model
