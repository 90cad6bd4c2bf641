"""A model is given the images that messages refer to, within a limit for each request."""

from __future__ import annotations

import base64
import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.run.conversation import Text
from easel.host.runs import images as images_module
from easel.host.runs import turns as turns_module
from tests.host.runs.models import CHOICE, RemoteModel
from tests.host.runs.talk import Talk
from tests.host.runs.workers import wait_until_ended, working
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.ids import AccountId, ArtifactId
    from tests.host.conftest import RunHarness

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20


@pytest.fixture
def talk(harness: RunHarness) -> Talk:
    return Talk(harness)


async def upload(harness: RunHarness, content: bytes) -> str:
    async def body() -> AsyncIterator[bytes]:
        yield content

    return (await harness.artifacts.upload(THE_OWNER, body())).artifact_id


@rule("RS-62")
async def test_image_of_a_message_is_given_as_an_image(talk: Talk, harness: RunHarness):
    name = await upload(harness, PNG)
    await talk.say(f"Look at [[artifact:{name}]]")
    [image] = talk.conversation.images
    assert (image.artifact_id, image.media_type, image.content) == (name, "image/png", PNG)
    await talk.say("Again")
    [turn] = talk.conversation.turns
    assert turn.images == (image,)
    assert talk.conversation.images == ()


@rule("RS-62")
async def test_image_that_was_pasted_as_base64_is_given_as_an_image(talk: Talk):
    await talk.say("See data:image/png;base64," + base64.b64encode(PNG).decode())
    [image] = talk.conversation.images
    assert (image.media_type, image.content) == ("image/png", PNG)
    assert "[[artifact:art_" in talk.conversation.user_message


@pytest.mark.parametrize(
    "content", [b"just text", PNG + b"x" * 200_000, b"%PDF-1.7 ..."], ids=["text", "large", "pdf"]
)
async def test_other_artifact_stays_a_reference(talk: Talk, harness: RunHarness, content: bytes):
    name = await upload(harness, content)
    await talk.say(f"Look at [[artifact:{name}]] and [[artifact:art_{'0' * 64}]]")
    assert talk.conversation.images == ()
    assert name in talk.conversation.user_message


class CountedReads:
    """Counts the artifacts that are read."""

    def __init__(self, harness: RunHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = harness.artifacts.read
        self.names: list[str] = []
        monkeypatch.setattr(harness.artifacts, "read", self.read)

    async def read(self, account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        self.names.append(artifact_id)
        return await self._read(account_id, artifact_id)


async def test_images_of_a_request_are_bounded_and_left_out_in_coarse_steps(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    for module in (images_module, turns_module):
        monkeypatch.setattr(module, "MAX_REQUEST_IMAGE_BYTES", 4 * len(PNG) + 100)
    model = RemoteModel([Text("ok")])
    names = [await upload(harness, PNG + bytes([number])) for number in range(12)]
    async with working(harness.worker(model=model, choice=CHOICE)):
        for name in names:
            await wait_until_ended(harness, await harness.start(f"Look at [[artifact:{name}]]"))
    firsts: list[int] = []
    for number, given in enumerate(model.conversations):
        shown = [image.artifact_id for turn in given.turns for image in turn.images]
        shown += [image.artifact_id for image in given.images]
        assert shown == names[number + 1 - len(shown) : number + 1], "the newest are given"
        assert 2 <= len(shown) <= 4 or number == 0
        assert [names[nth] in turn.user_message for nth, turn in enumerate(given.turns)] == [True] * number
        firsts.append(number + 1 - len(shown))
    changes = sum(before != after for before, after in itertools.pairwise(firsts))
    assert 2 <= changes <= 5, f"the images changed too often: {firsts}"


async def test_images_of_turns_that_are_left_out_are_not_read(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    names = [await upload(harness, PNG + bytes([number])) for number in range(8)]
    async with working(harness.worker()):
        for name in names:
            await wait_until_ended(harness, await harness.start(f"Look at [[artifact:{name}]]"))
    reads = CountedReads(harness, monkeypatch)
    model = RemoteModel([Text("ok")])
    async with working(harness.worker(model=model, choice=replace(CHOICE, token_budget=8_000))):
        await wait_until_ended(harness, await harness.start("go on"))
    [given] = model.conversations
    assert 1 <= len(given.turns) <= 3
    assert reads.names == list(reversed(names[-len(given.turns) :]))


async def test_images_of_one_message_are_bounded(
    talk: Talk, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    for module in (images_module, turns_module):
        monkeypatch.setattr(module, "MAX_REQUEST_IMAGE_BYTES", 2 * len(PNG) + 100)
    names = [await upload(harness, PNG + bytes([number])) for number in range(4)]
    await talk.say(" ".join(f"[[artifact:{name}]]" for name in names))
    assert [image.artifact_id for image in talk.conversation.images] == names[:2]
    await talk.say("Again")
    assert [image.artifact_id for image in talk.conversation.turns[0].images] == names[:2]


async def test_only_base64_of_an_image_is_decoded_and_in_a_thread(
    talk: Talk, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    decode, on_loop, in_thread = images_module._decode, list[int](), list[int]()

    def note_thread(text: bytes) -> bytes:
        is_main = threading.current_thread() is threading.main_thread()
        (on_loop if is_main else in_thread).append(len(text))
        return decode(text)

    monkeypatch.setattr(images_module, "_decode", note_thread)
    texts = [b"a " * 40_000, base64.encodebytes(b"no image " * 5_000), base64.encodebytes(PNG)]
    names = [await upload(harness, text) for text in texts]
    await talk.say(" ".join(f"[[artifact:{name}]]" for name in names))
    assert [image.content for image in talk.conversation.images] == [PNG]
    assert max(on_loop) <= 200
    assert in_thread == [len(texts[2])]


async def test_references_that_are_tried_are_bounded(
    talk: Talk, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    names = [await upload(harness, f"text {number}".encode()) for number in range(60)]
    reads = CountedReads(harness, monkeypatch)
    await talk.say(" ".join(f"[[artifact:{name}]]" for name in names))
    assert reads.names == names[:50]
