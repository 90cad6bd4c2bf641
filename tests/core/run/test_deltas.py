"""Streamed text becomes deltas at once, and a run of Base64 one delta whose text is offloaded."""

import base64
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.run.deltas import DELTA_BYTES, MAX_HELD_CHARACTERS, DeltaSplitter, split_text
from easel.core.run.events import RunEvents
from easel.core.stream.base64_runs import holds_base64
from easel.core.stream.payload_limit import LIMIT
from easel.ids import MessageId, RunId
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule
from tests.support.length import examples

RANDOM = random.Random(23)
BASE64 = base64.b64encode(RANDOM.randbytes(30_000)).decode()
LINES = "\n".join(BASE64[at : at + 76] for at in range(0, len(BASE64), 76))
BEFORE = "Here is the picture of a cat on a mat, as text; it is rather large.\n\n"
AFTER = "\n\nThat was it. Ask for another one when you need it. " * 3
ROOT = Path(__file__).parents[3]
STEPS = (3, 200, 1_500, 1_000_000)


def split(text: str, step: int) -> list[str]:
    """Return the deltas of a text that arrives in steps of so many characters."""
    splitter = DeltaSplitter()
    deltas = [delta for at in range(0, len(text), step) for delta in splitter.feed(text[at : at + step])]
    deltas += splitter.feed("", is_end=True)
    assert not splitter.is_holding
    assert "".join(deltas) == text
    return deltas


def logged_text(deltas: list[str]) -> tuple[str, int]:
    """Return the text that the log shows, and how many values were offloaded."""
    events = RunEvents(RunId("run_1"), agent_id="main", node_id="tool_loop")
    sealed = [events.delta(MessageId("msg_1"), delta) for delta in deltas]
    texts = [event.data["text"] if isinstance(event.data["text"], str) else "[offloaded]" for event in sealed]
    return "".join(texts), sum(len(event.offloaded) for event in sealed)


TEXTS = {
    "unbroken": BEFORE + BASE64 + AFTER,
    "lines": f"{BEFORE}```\n{LINES}\n```{AFTER}",
    "escaped line breaks": f"{BEFORE}{LINES[:9_000]!r}{AFTER}",
    "picture in Markdown": f"{BEFORE}![it](data:image/png;base64,{BASE64}){AFTER}",
    "two runs": BEFORE + BASE64[:5_000] + AFTER + BEFORE + BASE64[9_000:15_000] + AFTER,
    "url-safe alphabet": BEFORE + BASE64.replace("+", "-").replace("/", "_") + AFTER,
}


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", TEXTS)
def test_run_is_one_delta_and_the_text_around_it_stays(kind: str, step: int):
    text, offloaded_count = logged_text(split(TEXTS[kind], step))
    assert not holds_base64(text)
    assert offloaded_count == (2 if kind == "two runs" else 1)
    assert text.startswith(BEFORE[:40])
    assert text.endswith(AFTER)


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("step", [1, 7, 31, 200, 1_500])
def test_run_just_over_the_limit_never_reaches_the_log_in_pieces(step: int):
    for size in (LIMIT + 1, LIMIT + 20, LIMIT + 100):
        for text in (BASE64[:size], LINES[:size]):
            logged, _ = logged_text(split(BEFORE + text + AFTER, step))
            assert not holds_base64(logged), size
            assert text[60 : LIMIT // 2] not in logged


@rule("RS-35")
@pytest.mark.parametrize("step", STEPS)
def test_run_within_the_limit_stays_text(step: int):
    deltas = split(BEFORE + BASE64[: LIMIT - 100] + AFTER, step)
    assert all(len(delta) <= DELTA_BYTES for delta in deltas)


@pytest.mark.parametrize("step", [20, 1_500])
def test_ordinary_text_is_not_held_back(step: int):
    files = [*sorted(ROOT.glob("src/easel/core/**/*.py")), *sorted(ROOT.glob("docs/guide/*.md"))]
    assert len(files) > 50
    for path in files:
        text, splitter = path.read_text("utf-8"), DeltaSplitter()
        for at in range(0, len(text), step):
            assert splitter.feed(text[at : at + step]) == split_text(text[at : at + step]), path
            assert not splitter.is_holding


def test_list_of_identifiers_stays_text():
    text = "\n".join(base64.urlsafe_b64encode(RANDOM.randbytes(16)).decode().rstrip("=") for _ in range(400))
    assert all(len(delta) <= DELTA_BYTES for delta in split(text, 200))


def test_very_long_run_is_written_in_several_deltas():
    deltas = split(base64.b64encode(RANDOM.randbytes(900_000)).decode(), 10_000)
    assert all(len(delta) <= MAX_HELD_CHARACTERS + 10_000 for delta in deltas)
    assert sum(len(delta) > LIMIT for delta in deltas) in (4, 5, 6)


def test_text_after_a_run_releases_it():
    splitter = DeltaSplitter()
    assert splitter.feed(BASE64[:9_000]) == []
    assert splitter.is_holding
    assert splitter.feed("\n\nThat was it, and now for something else.")[0] == BASE64[:9_000]
    assert not splitter.is_holding


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.text(max_size=300) | st.integers(0, 30_000).map(lambda at: BASE64[at : at + 3_000]), max_size=12
    )
)
def test_no_text_is_lost_or_repeated(texts: list[str]):
    splitter = DeltaSplitter()
    deltas = [delta for text in texts for delta in splitter.feed(text)] + splitter.feed("", is_end=True)
    assert "".join(deltas) == "".join(texts)


def test_splitting_time_is_linear_in_the_size_of_the_text():
    max_seconds = 30 * least_seconds(lambda: split(BASE64[:10_000], 1_500)) + 0.1
    assert least_seconds(lambda: split(BASE64[:36_000] * 3, 1_500), enough=max_seconds) < max_seconds
