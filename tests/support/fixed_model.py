"""A source of models with one model for every user, for tests and measurements of the tool loop."""

from easel.core.model.choice import ModelChoice, Provider
from easel.host.ports import Model
from easel.ids import AccountId


class FixedModel:
    """A `ModelSource` with one model for every user."""

    def __init__(self, model: Model, choice: ModelChoice | None = None) -> None:
        self._model = model
        self._choice = choice or ModelChoice(Provider.SCRIPTED, "scripted")

    async def choose(self, account_id: AccountId) -> tuple[ModelChoice, Model]:
        return self._choice, self._model
