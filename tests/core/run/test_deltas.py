"""What is being said becomes deltas at once, and Base64 one delta whose text is moved."""

import base64
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.run.deltas import DELTA_BYTES, HELD_CHARACTERS, Flow, pieces
from easel.core.run.events import RunEvents
from easel.core.stream.encoded import holds_encoded
from easel.core.stream.payload_limit import LIMIT
from easel.ids import MessageId, RunId
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule

CHANCE = random.Random(23)
BASE64 = base64.b64encode(CHANCE.randbytes(75_000)).decode()
LINES = "\n".join(BASE64[at : at + 76] for at in range(0, len(BASE64), 76))
BEFORE = (
    "Here is the picture that you asked for, as text. It shows a cat on a mat, and it is rather large.\n\n"
)
BEHIND = "\n\nThat was it. I hope that you like it; do tell me when you want another one of them. " * 3
ROOT = Path(__file__).parents[3]
STEPS = (3, 20, 200, 1_500, 1_000_000)


def told(text: str, step: int) -> list[str]:
    """The deltas of a text that comes in steps of so many characters."""
    flow = Flow()
    found = [delta for at in range(0, len(text), step) for delta in flow.tell(text[at : at + step])]
    found += flow.tell("", is_end=True)
    assert not flow.is_holding
    assert "".join(found) == text
    return found


SAID = {
    "plain": BEFORE + BASE64 + BEHIND,
    "in lines": f"{BEFORE}```\n{LINES}\n```{BEHIND}",
    "a picture in Markdown": f"{BEFORE}![it](data:image/png;base64,{BASE64}){BEHIND}",
    "in JSON": f'{BEFORE}{{"image": "{BASE64}", "n": 1}}{BEHIND}',
    "two of them": BEFORE + BASE64[:5_000] + BEHIND + BEFORE + BASE64[9_000:15_000] + BEHIND,
    "nothing else": BASE64,
    "the other alphabet": BEFORE + BASE64.replace("+", "-").replace("/", "_") + BEHIND,
    "cut up": BEFORE + ",".join(BASE64[at : at + 60] for at in range(0, 9_000, 60)) + BEHIND,
}


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", SAID)
def test_base64_that_is_said_is_one_delta_and_what_is_around_it_stays_text(what: str, step: int):
    deltas = told(SAID[what], step)
    events = RunEvents(RunId("run_1"), agent_id="main", node_id="tool_loop")
    sealed = [events.delta(MessageId("msg_1"), delta) for delta in deltas]
    left = "".join(
        event.data["text"] if isinstance(event.data["text"], str) else "[moved]" for event in sealed
    )
    assert not holds_encoded(left)
    assert sum(len(event.offloaded) for event in sealed) == (2 if what == "two of them" else 1)
    assert left.startswith(BEFORE[:40]) or what == "nothing else"
    assert left.endswith(BEHIND) or what == "nothing else", "nothing that follows is hidden"


@rule("RS-35")
@pytest.mark.parametrize("step", STEPS)
def test_base64_within_the_limit_is_told_as_text(step: int):
    deltas = told(BEFORE + BASE64[: LIMIT - 100] + BEHIND, step)
    assert all(len(delta) <= DELTA_BYTES for delta in deltas)


@pytest.mark.parametrize("step", [20, 200, 1_500])
def test_ordinary_text_is_told_as_it_comes(step: int):
    files = [
        *sorted(ROOT.glob("src/easel/core/**/*.py")),
        *sorted(ROOT.glob("docs/guide/*.md")),
        *sorted(ROOT.glob("src/easel/ui/*.js")),
    ]
    assert len(files) > 50
    for path in files:
        text, flow = path.read_text("utf-8"), Flow()
        for at in range(0, len(text), step):
            assert flow.tell(text[at : at + step]) == pieces(text[at : at + step]), path
            assert not flow.is_holding


def test_names_that_look_odd_are_told_as_text():
    text = "\n".join(base64.urlsafe_b64encode(CHANCE.randbytes(16)).decode().rstrip("=") for _ in range(400))
    assert all(len(delta) <= DELTA_BYTES for delta in told(text, 200))


def test_what_goes_on_and_on_goes_out_in_several():
    deltas = told(base64.b64encode(CHANCE.randbytes(900_000)).decode(), 10_000)
    assert all(len(delta) <= HELD_CHARACTERS + 10_000 for delta in deltas)
    assert sum(len(delta) > LIMIT for delta in deltas) in (4, 5, 6)


def test_what_follows_base64_is_told_soon():
    flow = Flow()
    assert flow.tell(BASE64[:9_000]) == []
    assert flow.is_holding
    assert flow.tell("\n\nThat was it, and now for something else.")[0] == BASE64[:9_000]
    assert not flow.is_holding


@settings(max_examples=200)
@given(
    st.lists(
        st.text(max_size=300) | st.integers(0, 90_000).map(lambda at: BASE64[at : at + 3_000]), max_size=12
    )
)
def test_nothing_is_lost_or_told_twice(said: list[str]):
    flow = Flow()
    assert "".join(delta for text in said for delta in flow.tell(text)) + "".join(
        flow.tell("", is_end=True)
    ) == "".join(said)


def test_the_time_it_takes_is_in_proportion_to_what_is_said():
    most = 30 * least_seconds(lambda: told(BASE64[:20_000], 1_500)) + 0.1
    assert least_seconds(lambda: told(BASE64 * 2, 1_500), enough=most) < most
