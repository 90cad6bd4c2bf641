"""The tokens of a run over HTTP: only of ended runs whose model counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.core.run.conversation import Usage
from easel.llm import build as builders
from easel.llm.scripted import ScriptedModel
from tests.edges.http.live import LiveEasel, new_session, script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.tool.definition import ToolDefinition

USED = Usage(100, 10, 80, 4)


class CountingModel(ScriptedModel):
    """The scripted model, which counts tokens if the message is a script."""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        async for part in super().reply(conversation, tools):
            yield part
        if conversation.user_message != "noop":
            yield USED


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "ScriptedModel", CountingModel)
        with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
            yield live


def test_ended_run_has_the_tokens_of_all_its_steps(counting: LiveEasel) -> None:
    run_id = counting.finish(script({"call": "gsv__Clock"}, {"say": "done"}), new_session())
    assert counting.get(f"/api/runs/{run_id}").json()["usage"] == (USED + USED).to_json()
    listed = counting.get("/api/runs").json()["runs"]
    assert all("usage" not in run for run in listed)


def test_run_of_a_model_that_counts_nothing_has_no_usage(counting: LiveEasel) -> None:
    run_id = counting.finish("noop", new_session())
    assert "usage" not in counting.get(f"/api/runs/{run_id}").json()
