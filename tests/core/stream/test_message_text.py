"""The text of a message is always a string: what is taken out of it, how it fits an event, and old rows."""

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.session.message import message, question, read_content
from easel.core.stream.base64_runs import holds_base64
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.marker import LIMIT
from easel.core.stream.message_text import (
    DELTA_BYTES,
    MessageText,
    cut_text,
    restore_references,
    split_message,
    take_out_runs,
)
from easel.ids import MessageId, RunId
from tests.core.stream.costs import least_seconds
from tests.requirements import rule
from tests.support.length import examples

AUTHOR = Provenance("main", "tool_loop", "run_1")
RANDOM = random.Random(62)


def encode(size: int) -> str:
    return base64.b64encode(RANDOM.randbytes(size)).decode()


BASE64 = encode(9_000)


def restore(text: MessageText) -> str:
    return restore_references(text.text, {value.artifact_id: value.content for value in text.offloaded})


def reference(marker: dict[str, Any]) -> str:
    return f"[[artifact:art_{marker['sha256']}]]"


@rule("RS-62")
def test_each_run_is_replaced_and_the_words_around_it_are_kept():
    other = encode(4_000)
    text = take_out_runs(f"First {BASE64}, then {other}. Again: {BASE64}!")
    first, second = text.attachments
    assert text.text == f"First {reference(first)}, then {reference(second)}. Again: {reference(first)}!"
    assert first["uri"] == f"/api/artifacts/art_{first['sha256']}"
    assert restore(text) == f"First {BASE64}, then {other}. Again: {BASE64}!"


@rule("RS-62")
def test_reference_that_a_person_types_is_ordinary_text():
    typed = f"See [[artifact:art_{'0' * 64}]] and [[artifact:x]]"
    assert take_out_runs(typed) == MessageText(typed)
    assert restore(take_out_runs(f"{typed} {BASE64}")) == f"{typed} {BASE64}"


def test_text_that_no_database_stores_is_replaced():
    assert take_out_runs("a\x00b\ud800").text == "a\ufffdb\ufffd"
    assert take_out_runs(f"\x00{BASE64}").text.startswith("\ufffd[[artifact:")


# --- events -------------------------------------------------------------------------------------------------


def completed(text: str | MessageText, **members: Any) -> Envelope:
    names = {"role": "assistant", "message_id": "msg_1", "run_id": "run_1", "status": "completed"}
    return seal("message.completed", {**names, "text": text, **members}, AUTHOR)


def data_of(event: Envelope) -> dict[str, Any]:
    data = json.loads(event.json)
    assert data == event.data
    assert data.pop("visibility") == "public"
    assert isinstance(data["text"], str)
    assert len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()) <= LIMIT
    return data


def fetched(event: Envelope) -> dict[str, bytes]:
    return {f"/api/artifacts/{value.artifact_id}": value.content for value in event.offloaded}


@rule("RS-62")
def test_short_text_with_a_run_has_its_marker():
    event = completed(f"Look: {BASE64} there")
    data = data_of(event)
    [marker] = data["attachments"]
    assert data["text"] == f"Look: {reference(marker)} there"
    assert "truncated" not in data
    assert fetched(event) == {marker["uri"]: BASE64.encode()}


@rule("RS-62")
@pytest.mark.parametrize("words", ["word ", "wörter ", "日本語", '"\\\n\t'])
def test_long_text_is_its_beginning_and_the_first_attachment_is_all_of_it(words: str):
    text = words * 2_000 + BASE64
    event = completed(text)
    data = data_of(event)
    assert data["truncated"] is True
    assert len(json.dumps(data["text"], ensure_ascii=False).encode()) > 1_000
    whole, of_run = data["attachments"]
    content = fetched(event)[whole["uri"]].decode()
    assert content == words * 2_000 + reference(of_run)
    assert content.startswith(data["text"])
    assert fetched(event)[of_run["uri"]] == BASE64.encode()


@rule("RS-62")
@pytest.mark.parametrize("words", ["", "word " * 1_000])
def test_list_of_attachments_that_does_not_fit_is_one_marker(words: str):
    runs = [encode(2_000) for _ in range(12)]
    event = completed(words + ", ".join(runs))
    data = data_of(event)
    assert data["attachments"]["uri"].endswith("#json")
    attachments = json.loads(fetched(event)[data["attachments"]["uri"].removesuffix("#json")])
    assert data.get("truncated", False) is bool(words)
    of_runs = attachments[1:] if words else attachments
    assert [fetched(event)[marker["uri"]].decode() for marker in of_runs] == runs
    assert event.refers_to == {value.artifact_id for value in event.offloaded}


@rule("RS-62")
def test_reference_is_not_cut_in_two():
    for length in range(1_000, 1_300):
        text = data_of(completed("x" * length + BASE64 + "y" * 2_000))["text"]
        assert text.count("[[") == text.count("]]")


def test_long_error_leaves_room_for_the_text():
    data = data_of(completed("word " * 1_000, error="ä" * 1_000))
    assert data["error"]["original_size"] == 2_000
    assert data["text"].startswith("word word")


@rule("RS-62")
@settings(max_examples=examples(200))
@given(
    st.lists(
        st.text(max_size=400) | st.sampled_from([BASE64, BASE64[:3_000], f"[[artifact:art_{'1' * 64}]]"]),
        max_size=8,
    )
)
def test_text_of_any_event_is_a_string_and_is_restored(parts: list[str]):
    text = " ".join(parts).replace("\x00", "")
    light = take_out_runs(text)
    assert not holds_base64(light.text)
    assert restore(light) == text
    pieces = split_message(light)
    assert "".join(piece.text for piece in pieces) == light.text
    for piece in pieces:
        data = data_of(seal("message.delta", {"message_id": "msg_1", "text": piece}, AUTHOR))
        assert data["text"] == piece.text
        assert len(json.dumps(data["text"], ensure_ascii=False).encode()) <= DELTA_BYTES + 2
    assert light.text.startswith(data_of(completed(text))["text"])


def test_cut_text_is_the_longest_beginning():
    assert cut_text("abc", 3) == "abc"
    assert cut_text("abcd", 3) == "abc"
    assert cut_text("aä\n", 3) == "aä"
    assert cut_text("", 3) == ""


# --- messages -----------------------------------------------------------------------------------------------


@rule("RS-62", "RS-35")
def test_long_question_has_deltas_and_a_short_one_has_none():
    run_id = RunId("run_1")
    short = question(run_id, take_out_runs("x" * 1_500))
    assert short.deltas == ()
    long = question(run_id, take_out_runs("word " * 1_000 + BASE64))
    assert {delta.data["role"] for delta in long.deltas} == {"user"}
    assert "".join(delta.data["text"] for delta in long.deltas) == json.loads(long.content)["text"]
    assert long.event is not None
    assert long.event.data["truncated"] is True
    assert long.refers_to == {value.artifact_id for value in long.offloaded}


@rule("RS-62")
def test_stored_content_is_read_back():
    plain, light = "plain " * 1_000, take_out_runs(f"See {BASE64}")
    assert read_content(json.loads(message(MessageId("m"), plain).content)) == MessageText(plain)
    stored = read_content(json.loads(message(MessageId("m"), light).content))
    assert (stored.text, stored.attachments) == (light.text, light.attachments)


def test_time_to_split_a_message_grows_with_its_length() -> None:
    def seconds(length: int) -> float:
        text = MessageText("so many words " * (length // 14))
        return least_seconds(lambda: split_message(text), enough=0.001)

    assert seconds(1_600_000) < 40 * seconds(100_000), "16 times the length"
