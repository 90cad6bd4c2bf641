"""A session whose runs are executed one after the other, for tests of what a model is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easel.core.run.conversation import Text
from tests.host.runs.models import CHOICE, RemoteModel
from tests.host.runs.workers import wait_until_ended, working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.run.conversation import Conversation
    from easel.core.run.run import Run
    from tests.host.conftest import RunHarness


class Talk:
    """A session whose runs are executed one after the other by one worker."""

    def __init__(self, harness: RunHarness, **options: Any) -> None:
        self.harness = harness
        self.options = {"choice": CHOICE, **options}

    async def say(
        self, message: str, *answers: Sequence[Any], tools: Sequence[Any] = (), **changed: Any
    ) -> Run:
        self.model = RemoteModel(*(answers or [[Text(f"answer to {message[:20]}")]]))
        worker = self.harness.worker(*tools, model=self.model, **{**self.options, **changed})
        run_id = await self.harness.start(message)
        async with working(worker):
            return await wait_until_ended(self.harness, run_id)

    @property
    def conversation(self) -> Conversation:
        """The conversation of the last step."""
        return self.model.conversations[-1]
