"""Failures of providers in words that say what to do."""

import pytest

from easel.core.run.conversation import Conversation
from easel.errors import ModelFailed
from easel.llm.build import Models
from tests.llm.talking import ask, choice_of
from tests.llm.test_answer_limits import STREAM, hostile
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer
from tests.llm.vendors.server import KEY, VendorServer, serve


@pytest.mark.parametrize(
    "provider, status, message, expected",
    [
        ("anthropic", 400, "prompt is too long: 9 tokens", "lower the token budget"),
        ("anthropic", 400, "Your credit balance is too low", "quota or credit"),
        ("openai-chat", 400, f"bad request with {KEY} in it", r"says: bad request with \[key\] in it"),
        ("openai-responses", 400, "first line\n  second line", "says: first line second line"),
        ("gemini", 400, "x" * 1000, "x{300}…"),
        ("gemini", 400, "API key not valid. Please pass a valid API key.", "refused the API key"),
        ("gemini", 403, "Permission denied", "refused the API key"),
        ("openai-chat", 413, "too large", "rejected the request"),
    ],
)
async def test_refusal_is_explained(provider: str, status: int, message: str, expected: str):
    models = Models()
    with serve(VENDORS[provider](), [Answer(status=status, message=message)]) as server:
        with pytest.raises(ModelFailed, match=expected) as failed:
            await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
        assert len(server.requests) == 1
    await models.close()
    assert KEY not in str(failed.value)
    assert len(str(failed.value)) < 600


HALF = b'data: {"id": '
FAULTS = {
    "invalid JSON": (STREAM, HALF + b"nope}\n\n", "cannot be read|was cut before the answer's end"),
    "invalid UTF-8": (STREAM, HALF + b'"\xff\xfe"}\n\n', "cannot be read|was cut before the answer's end"),
    "nothing": (STREAM, b"", "cannot be read"),
    "a half": (STREAM + b"\r\ncontent-length: 99", HALF, "was cut before the answer's end: peer closed"),
    "a redirect": (
        b"302 Found\r\nlocation: http://127.0.0.1:9/",
        b"",
        r"redirect \(HTTP 302\).*set the base URL",
    ),
    "a web page": (b"200 OK\r\ncontent-type: text/html", b"<html>", "a web page.*check the base URL"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_unusable_answer_is_not_called_a_rejection(provider: str, models: Models, fault: str):
    head, body, expected = FAULTS[fault]
    with hostile(head, lambda: [body]) as server:
        with pytest.raises(ModelFailed, match=expected) as failed:
            await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
        assert "rejected" not in str(failed.value)
        assert len(server.requests) == (1 if "base URL" in expected else 3)


async def test_fault_of_easel_is_not_called_one_of_the_address(
    provider: str, server: VendorServer, models: Models, monkeypatch: pytest.MonkeyPatch
):
    import easel.llm.request as requests  # noqa: PLC0415 - loads the library

    monkeypatch.delattr(requests, "tool_names")
    with pytest.raises(ModelFailed, match=r"a fault of Easel .* \(NameError\)") as failed:
        await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert "address" not in str(failed.value)


async def test_short_key_does_not_change_the_words_of_a_failure():
    models = Models()
    with serve(VENDORS["anthropic"](), [Answer(status=400, message="a bad request")], key="e") as server:
        model = models.build_model(choice_of("anthropic", server.base_url, key="e"))
        with pytest.raises(ModelFailed, match=r"rejected the request .* a bad request"):
            await ask(model, Conversation("Hi"))
    await models.close()


async def test_key_is_in_no_part_of_a_failure(provider: str):
    """Neither in the message nor in the exceptions behind it, which a log may print."""
    models = Models()
    with serve(VENDORS[provider](), [Answer(status=400, message="no")]) as server:
        model = models.build_model(choice_of(provider, server.base_url))
        with pytest.raises(ModelFailed) as failed:
            await ask(model, Conversation("Hi"))
    await models.close()
    assert failed.value.__suppress_context__
    assert KEY not in repr(failed.value)
