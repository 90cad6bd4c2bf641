"""Which references nothing mentions any more."""

from __future__ import annotations

import pytest

from easel.core.session.message import question
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import make_marker, mentioned_artifacts
from easel.core.stream.message_text import take_out_runs
from easel.core.stream.references import RunContent, decide_release
from easel.ids import OWNER, RunId
from tests.requirements import rule
from tests.support.artifacts import id_of

MARKER, OFFLOADED = make_marker("iVBORw0K" * 400)
PICTURE = OFFLOADED.artifact_id
OTHER = id_of(b"other")

VALUES = {
    "a marker": MARKER,
    "a marker inside": {"panels": [1, {"picture": MARKER}]},
    "a marker of JSON": make_marker({"rows": ["x"] * 10})[0],
    "a path": "see /api/artifacts/" + PICTURE,
    "a name in text": f"the picture {PICTURE}, please",
    "a reference of a message": {"text": f"look: [[artifact:{PICTURE}]] nice", "attachments": [MARKER]},
    "attachments alone": {"text": "look", "attachments": [MARKER]},
    "a key": {PICTURE: True},
}


@rule("RS-35", "RS-62")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_artifact_is_mentioned_wherever_its_name_stands(value: object) -> None:
    names = {make_marker({"rows": ["x"] * 10})[1].artifact_id, PICTURE}
    assert len(mentioned_artifacts(to_json(value)) & names) == 1


@pytest.mark.parametrize("value", ["", "art_", "art_" + "0" * 63, {"sha256": "0" * 64}, None])
def test_other_text_mentions_nothing(value: object) -> None:
    assert mentioned_artifacts(to_json(value)) == frozenset()


@rule("RS-35")
def test_reference_that_state_and_spec_do_not_mention_is_released() -> None:
    decision = decide_release({PICTURE: 3, OTHER: 4}, to_json({"shot": MARKER}), "{}")
    assert (decision.released, decision.kept) == ([OTHER], [PICTURE])
    decision = decide_release({PICTURE: 3}, "{}", to_json({"html": PICTURE}))
    assert (decision.released, decision.kept) == ([], [PICTURE])


@rule("RS-35")
def test_reference_of_an_older_release_is_kept_until_the_log_has_moved_on() -> None:
    decision = decide_release({PICTURE: None, OTHER: 4}, "{}", "{}")
    assert (decision.released, decision.kept) == ([OTHER], [PICTURE])


@rule("RS-35")
def test_pruned_run_mentions_what_its_messages_and_boards_name() -> None:
    references = frozenset({PICTURE, OTHER})
    content = RunContent(OWNER, references, [to_json({"v": MARKER}), to_json("hello")])
    assert content.mentioned == content.offloaded == {PICTURE}, "a value that was offloaded may name others"
    assert RunContent(OWNER, references, [to_json(f"see {OTHER}")]).offloaded == frozenset()


@rule("RS-35")
def test_every_reference_of_a_question_is_found_in_what_is_stored_of_it() -> None:
    """Except those that only its offloaded text names."""
    text = f"Look at {OTHER} and " + "iVBORw0KGgoAAAANSUhEUg" * 200
    asked = question(RunId("run_1"), take_out_runs(text))
    assert asked.event is not None
    content = RunContent(OWNER, asked.refers_to, [asked.content, asked.event.json])
    nested = frozenset[str]().union(
        *(
            mentioned_artifacts(value.content.decode())
            for value in asked.offloaded
            if value.artifact_id in content.offloaded
        )
    )
    assert asked.refers_to <= content.mentioned | nested
