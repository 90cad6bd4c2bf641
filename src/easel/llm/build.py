"""Builds the models of choices, and closes their connections when the host stops.

Imports a provider's library when a model of it is first asked, in the one provider thread: a host that uses
only the scripted model loads none.
"""

import gc
import hashlib
import importlib
import ssl
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
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

MAX_MODELS = 256  # kept in memory
MAX_IDLE_CONNECTIONS = 100
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
    """The models of all choices. Building one is cheap for a known choice."""

    def __init__(
        self, settings: RequestSettings = DEFAULT_SETTINGS, public_network: Callable[[], Any] | None = None
    ) -> None:
        """Connect with `public_network()`, a backend of httpcore, where the address must be public."""
        self._settings = settings
        self._public_network = public_network
        self._thread = ProviderThread()
        self._clients: dict[tuple[RequestSettings, bool], httpx2.AsyncClient] = {}
        self._build = lru_cache(MAX_MODELS)(self._build_new)

    def build_model(self, choice: ModelChoice) -> "ScriptedModel | ProviderModel":
        """Return the model of a choice. Never waits: an unusable choice fails when it is first asked."""
        # The token budget limits the conversation, not the request.
        return self._build(replace(choice, token_budget=0), self._settings)

    def build_for_check(self, choice: ModelChoice) -> "ScriptedModel | ProviderModel":
        return self._build(replace(choice, token_budget=0), CHECK_SETTINGS)

    async def close(self) -> None:
        """End the requests in flight and close all connections."""
        for client in self._clients.values():
            await self._thread.run(client.aclose())
        await self._thread.close()

    def _build_new(self, choice: ModelChoice, settings: RequestSettings) -> "ScriptedModel | ProviderModel":
        if choice.provider is Provider.SCRIPTED:
            return ScriptedModel()
        return ProviderModel(choice, settings, self._thread, self._open_client)

    def _open_client(self, settings: RequestSettings, *, is_public_only: bool) -> "httpx2.AsyncClient":
        """Return the HTTP client that all models with these settings share. In the provider thread."""
        if (client := self._clients.get((settings, is_public_only))) is None:
            http, limits = _load("httpx2"), _load("easel.llm.answer_limits")
            tls = ssl.create_default_context()
            kept = http.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS)
            client = self._clients[settings, is_public_only] = http.AsyncClient(
                verify=tls,
                transport=self._public_transport(tls, kept) if is_public_only else None,
                timeout=http.Timeout(settings.read_seconds, connect=settings.connect_seconds),
                limits=kept,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # users must not share cookies
                event_hooks={
                    "request": [limits.request_plain_answer],
                    "response": [remember_response, limits.limit_answer],
                },
                follow_redirects=False,  # a key is sent to the address in the settings only
            )
        return client

    def _public_transport(self, tls: ssl.SSLContext, limits: Any) -> Any:
        """Return a transport that connects to public addresses only, without a proxy."""
        if self._public_network is None:
            raise ModelFailed(reason="this process makes no requests to an address that a user has set.")
        transport = _load("httpx2").AsyncHTTPTransport(verify=tls, trust_env=False)
        transport._pool = _load("httpcore2").AsyncConnectionPool(
            ssl_context=tls,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            network_backend=self._public_network(),
        )
        return transport


class ProviderModel:
    """A model behind a provider's API."""

    is_remote = True

    def __init__(
        self,
        choice: ModelChoice,
        settings: RequestSettings,
        thread: ProviderThread,
        open_client: "Callable[..., httpx2.AsyncClient]",
    ) -> None:
        self._choice = choice
        self._settings = settings
        self._thread = thread
        self._open_client = open_client
        self._wire: Wire | None = None

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        async def produce(send: Callable[[Part], Awaitable[None]]) -> None:
            try:
                wire = self._open()
                request = _load("easel.llm.request").ProviderRequest(
                    wire, self._choice, self._settings.retries
                )
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

        parts = self._thread.stream(produce)
        try:
            async for part in parts:
                yield part
        except ConnectionError as problem:
            raise ModelFailed(reason=str(problem)) from None
        finally:
            await parts.aclose()

    def _open(self) -> "Wire":
        """Return the wire, and load its library for the first request. In the provider thread."""
        if self._wire is None:
            _check_address(self._choice.base_url)
            family = _load(_MODULES[self._choice.provider])
            client = self._open_client(self._settings, is_public_only=self._choice.is_public_only)
            self._wire = family.build(self._choice, client, endpoint_of(self._choice))
        assert self._wire is not None
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
