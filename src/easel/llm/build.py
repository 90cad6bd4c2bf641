"""Builds the models of choices, and closes their connections when the host stops.

Imports a provider's library when a model of it is first asked, in the one provider thread: a host that uses
only the scripted model loads none.
"""

import asyncio
import gc
import hashlib
import importlib
import ssl
import sys
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import Conversation, Part
from easel.core.tool.definition import ToolDefinition
from easel.errors import ModelFailed
from easel.llm.open_responses import remember_response
from easel.llm.provider_thread import ProviderThread
from easel.llm.retries import DEFAULT_RETRIES, NO_RETRIES, RetrySettings
from easel.llm.scripted import ScriptedModel

if TYPE_CHECKING:
    import httpx2

    from easel.llm.wire import Wire

log = structlog.get_logger("model")

MAX_MODELS = 256  # choices with a connection pool of their own
_MODULES = {
    Provider.OPENAI_CHAT: "easel.llm.openai_chat",
    Provider.OPENAI_RESPONSES: "easel.llm.openai_responses",
    Provider.GEMINI: "easel.llm.gemini",
    Provider.ANTHROPIC: "easel.llm.anthropic",
}


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """Times of provider requests. `read_seconds` is the longest silence, also within an answer."""

    retries: RetrySettings = DEFAULT_RETRIES
    connect_seconds: float = 10.0
    read_seconds: float = 300.0


DEFAULT_SETTINGS = RequestSettings()
# A check waits only a few seconds, so a failed request must not be repeated.
CHECK_SETTINGS = RequestSettings(NO_RETRIES, connect_seconds=4.0, read_seconds=6.0)


class Models:
    """The models of all choices, each with one HTTP client. Building one is cheap for a known choice."""

    def __init__(self, settings: RequestSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._thread = ProviderThread()
        self._scripted = ScriptedModel()
        self._models: OrderedDict[tuple[ModelChoice, RequestSettings], ProviderModel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None

    def build_model(
        self, choice: ModelChoice, settings: RequestSettings | None = None
    ) -> "ScriptedModel | ProviderModel":
        """Return the model of a choice. Never waits: an unusable choice fails when it is first asked."""
        if choice.provider is Provider.SCRIPTED:
            return self._scripted
        choice = replace(choice, token_budget=0)  # it limits the conversation, not the request
        key = choice, settings or self._settings
        if (known := self._models.get(key)) is not None:
            self._models.move_to_end(key)
            return known
        model = self._models[key] = ProviderModel(*key, self._thread, self._tls_context)
        if len(self._models) > MAX_MODELS:
            _, oldest = self._models.popitem(last=False)
            task = asyncio.ensure_future(oldest.close_when_idle())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return model

    def build_for_check(self, choice: ModelChoice) -> "ScriptedModel | ProviderModel":
        return self.build_model(choice, CHECK_SETTINGS)

    async def close(self) -> None:
        """End the requests in flight and close all connections."""
        for task in self._closing:
            task.cancel()
        models, self._models = list(self._models.values()), OrderedDict()
        for model in models:
            await model.close()
        await self._thread.close()

    def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS settings, the same for all. Loads them in the provider thread."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class ProviderModel:
    """A model behind a provider's API."""

    is_remote = True

    def __init__(
        self,
        choice: ModelChoice,
        settings: RequestSettings,
        thread: ProviderThread,
        tls_context: Callable[[], ssl.SSLContext],
    ) -> None:
        self._choice = choice
        self._settings = settings
        self._thread = thread
        self._tls_context = tls_context
        self._wire: Wire | None = None
        self._http: httpx2.AsyncClient | None = None
        self._in_flight = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        async def produce(send: Callable[[Part], Awaitable[None]]) -> None:
            try:
                wire = self._open()
                request = _load("easel.llm.request").Request(wire, self._choice, self._settings.retries)
                await request.run(conversation, tools, send)
            except ModelFailed:
                raise
            except Exception as problem:  # noqa: BLE001 - whatever a library raises ends this run alone
                # Without its message, which may quote the address with a password, or the conversation.
                provider, name = self._choice.provider.value, type(problem).__name__
                frame = traceback.extract_tb(problem.__traceback__)[-1]
                log.warning(
                    "model.error", provider=provider, error=name, at=f"{frame.filename}:{frame.lineno}"
                )
                raise ModelFailed(
                    reason=f"the request to {provider} was not made, by a fault of Easel or of a library "
                    f"({name}); the log of the server says where."
                ) from None

        self._in_flight += 1
        self._is_idle.clear()
        parts = self._thread.stream(produce)
        try:
            async for part in parts:
                yield part
        except ConnectionError as problem:
            raise ModelFailed(reason=str(problem)) from None
        finally:
            await parts.aclose()
            self._in_flight -= 1
            if not self._in_flight:
                self._is_idle.set()

    async def close(self) -> None:
        """Close the connections, which ends the requests in flight."""
        if self._http is not None:
            http, self._http, self._wire = self._http, None, None
            await self._thread.run(http.aclose())

    async def close_when_idle(self) -> None:
        await self._is_idle.wait()
        await self.close()

    def _open(self) -> "Wire":
        """Return the wire, and load its library for the first request. In the provider thread."""
        if self._wire is None:
            _check_address(self._choice.base_url)
            http = _load("httpx2")
            limits = _load("easel.llm.answer_limits")
            settings = self._settings
            self._http = http.AsyncClient(
                verify=self._tls_context(),
                timeout=http.Timeout(settings.read_seconds, connect=settings.connect_seconds),
                event_hooks={
                    "request": [limits.request_plain_answer],
                    "response": [remember_response, limits.limit_answer],
                },
                follow_redirects=False,  # a key is sent to the address in the settings only
            )
            family = _load(_MODULES[self._choice.provider])
            wire: Wire = family.build(self._choice, self._http, endpoint_of(self._choice))
            self._wire = wire
        return self._wire


def _load(name: str) -> Any:
    """Return a module, completely imported: another thread may be in the middle of importing it."""
    is_new = name not in sys.modules
    loaded = importlib.import_module(name)
    if is_new:
        # The objects of a library are permanent. Without this, each full garbage collection visits them all,
        # which stops the process for 100 to 250 ms.
        gc.freeze()
    return loaded


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        is_usable = not base_url or (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        )
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ModelFailed(reason="the base URL must be like https://host/path; check the address.")


def endpoint_of(choice: ModelChoice) -> str:
    """Return a digest that identifies the address without showing it."""
    return hashlib.sha256(choice.base_url.encode()).hexdigest()[:12] if choice.base_url else ""
