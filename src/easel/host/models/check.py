"""A check whether a model answers: one small request, which ends at the first part of the answer."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import server_of
from easel.core.run.conversation import Conversation, Part
from easel.errors import HostError
from easel.host.ports import Model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CHECK_SECONDS = 8.0
CHECK_MESSAGE = Conversation("Reply with the word ok.")
SIGNS_OF_TLS = ("certificate", "[ssl", "tls")


@dataclass(frozen=True, slots=True)
class ModelCheck:
    is_ok: bool
    text: str


async def check_model(choice: ModelChoice, model: Model, seconds: float = CHECK_SECONDS) -> ModelCheck:
    """Make the request, and explain a failure. Takes at most `seconds`."""
    if choice.provider is Provider.SCRIPTED:
        return ModelCheck(is_ok=True, text="scripted, which needs no key and makes no request")
    name = f"{choice.model} of {server_of(choice.provider, choice.base_url)}"
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            parts = cast("AsyncGenerator[Part]", model.reply(CHECK_MESSAGE, ()))
            async with contextlib.aclosing(parts):
                async for _ in parts:
                    break
    except TimeoutError:
        if not limit.expired():
            raise
        where = (
            f"the base URL {choice.base_url}" if choice.base_url else "that this machine has internet access"
        )
        return ModelCheck(is_ok=False, text=f"{name} did not answer within {seconds:g} s; check {where}.")
    except HostError as problem:
        return ModelCheck(is_ok=False, text=f"{name}: {_explain(problem)}")
    return ModelCheck(is_ok=True, text=f"{name} answers")


def _explain(problem: HostError) -> str:
    """Return the reason of a failure, which names what to do, with a hint for a TLS failure."""
    text = str(problem.details.get("reason", problem.message))
    if any(sign in text.lower() for sign in SIGNS_OF_TLS):
        text = f"{text} The TLS connection failed: for a certificate of your own, set SSL_CERT_FILE."
    return text
