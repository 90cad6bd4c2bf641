"""The settings of a user's model: their names, their checks, and which value is used.

A user's own value is used before the host's default, and that before Easel's. An API key belongs to the
server that it was set for, and is never sent to another one: neither the host's key to an address that a user
chose, nor a user's key for one provider to another provider.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from easel.core.audit.redaction import Redaction
from easel.core.canvas.actions import Approval
from easel.core.model.choice import REASONING_EFFORTS, ModelChoice, Provider
from easel.core.validation import find_nearest, quote_value, refuse, require_choice

NAMES = ("provider", "model", "api_key", "base_url", "reasoning_effort", "token_budget", "approval_by")
SECRET_NAMES = frozenset({"api_key"})

# The model of a user who names none. The only table to change when a provider replaces a model.
DEFAULT_MODELS: Mapping[Provider, str] = {
    Provider.SCRIPTED: "scripted",
    Provider.OPENAI_CHAT: "gpt-5.5",
    Provider.OPENAI_RESPONSES: "gpt-5.5",
    Provider.GEMINI: "gemini-3.8-flash",
    Provider.ANTHROPIC: "claude-sonnet-5-5",
}
# A key of a vendor is valid for all its wire formats.
VENDORS: Mapping[Provider, str] = {
    Provider.SCRIPTED: "scripted",
    Provider.OPENAI_CHAT: "openai",
    Provider.OPENAI_RESPONSES: "openai",
    Provider.GEMINI: "gemini",
    Provider.ANTHROPIC: "anthropic",
}
# Words that people use for a provider.
OTHER_WORDS = {
    "openai": Provider.OPENAI_RESPONSES,
    "gpt": Provider.OPENAI_RESPONSES,
    "chatgpt": Provider.OPENAI_RESPONSES,
    "google": Provider.GEMINI,
    "claude": Provider.ANTHROPIC,
    "ollama": Provider.OPENAI_CHAT,
    "vllm": Provider.OPENAI_CHAT,
    "openrouter": Provider.OPENAI_CHAT,
}
DEFAULT_TOKEN_BUDGET = 100_000
MIN_TOKEN_BUDGET = 4_000
MAX_TOKEN_BUDGET = 10_000_000
MAX_MODEL_LENGTH = 200
MAX_KEY_LENGTH = 4_096
MAX_URL_LENGTH = 2_000
MIN_MASKED_LENGTH = 20  # a shorter key is not shown in part


class Source(StrEnum):
    """Where a value comes from."""

    USER = "user"
    HOST = "host"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key and the server that it was set for, as `server_of` names it."""

    text: str = field(repr=False)
    server: str


@dataclass(frozen=True, slots=True)
class ModelValues:
    """The values that one user, or the host, has set. None: not set."""

    provider: Provider | None = None
    model: str | None = None
    api_key: ApiKey | None = None
    base_url: str | None = None
    reasoning_effort: str | None = None
    token_budget: int | None = None
    approval_by: Approval | None = None  # of a team: who may approve its calls. RS-77


@dataclass(frozen=True, slots=True)
class Resolved:
    """The model that is used, and where each value comes from."""

    choice: ModelChoice
    sources: Mapping[str, Source]
    note: str | None = None  # what a person should know about the combination
    approval_by: Approval = Approval.ANYONE


def server_of(provider: Provider, base_url: str) -> str:
    """Return the name of the server that a request with this provider and address reaches."""
    return f"{VENDORS[provider]} at {base_url.rstrip('/')}" if base_url else VENDORS[provider]


def resolve(user: ModelValues, host: ModelValues) -> Resolved:
    """Return the model of a user.

    The host's address and model are used only for the host's own provider; the host's key only for the
    host's own server.
    """
    provider = user.provider or host.provider or Provider.SCRIPTED
    host_provider = host.provider or Provider.SCRIPTED
    same_vendor = VENDORS[provider] == VENDORS[host_provider]
    base_url, url_source = _first(user.base_url, host.base_url if same_vendor else None, "")
    server, host_server = server_of(provider, base_url), server_of(host_provider, host.base_url or "")
    host_model = host.model if server == host_server else None
    model, model_source = _first(user.model, host_model, DEFAULT_MODELS[provider])
    effort, effort_source = _first(user.reasoning_effort, host.reasoning_effort, "")
    budget, budget_source = _first(user.token_budget, host.token_budget, DEFAULT_TOKEN_BUDGET)
    approval_by, approval_source = _first(user.approval_by, host.approval_by, Approval.ANYONE)
    own_key = user.api_key if user.api_key and user.api_key.server == server else None
    host_key = host.api_key if host.api_key and host_server == server else None
    key, key_source = _first(own_key, host_key, None)
    sources = {
        "provider": _first(user.provider, host.provider, Provider.SCRIPTED)[1],
        "model": model_source,
        "api_key": key_source,
        "base_url": url_source,
        "reasoning_effort": effort_source,
        "token_budget": budget_source,
        "approval_by": approval_source,
    }
    note = None
    if user.api_key and own_key is None and provider is not Provider.SCRIPTED:
        note = (
            f"Your api_key was set for {user.api_key.server} and is not sent to {server}; "
            "set api_key again to use it there."
        )
    choice = ModelChoice(
        provider,
        model,
        api_key="" if key is None or provider is Provider.SCRIPTED else key.text,
        base_url=base_url,
        reasoning_effort=effort,
        token_budget=budget,
    )
    return Resolved(choice, sources, note, approval_by)


def _first(own: Any, host: Any, default: Any) -> tuple[Any, Source]:
    if own is not None:
        return own, Source.USER
    return (host, Source.HOST) if host is not None else (default, Source.DEFAULT)


def cleared_by(user: ModelValues, host: ModelValues, changes: Mapping[str, Any]) -> frozenset[str]:
    """Return the user's settings that a change of the provider clears, unless the change names them.

    The name of a model and the address of a server are of no use with another vendor.
    """
    if "provider" not in changes:
        return frozenset()
    before = user.provider or host.provider or Provider.SCRIPTED
    after = changes["provider"] or host.provider or Provider.SCRIPTED
    if VENDORS[before] == VENDORS[Provider(after)]:
        return frozenset()
    own = {name for name in ("model", "base_url") if getattr(user, name) is not None}
    return frozenset(own - set(changes))


def needs_key(choice: ModelChoice) -> bool:
    """Return whether a key is missing: a server at another address may need none."""
    return choice.provider is not Provider.SCRIPTED and not choice.api_key and not choice.base_url


def mask(key: str) -> str:
    """Return what may be shown of a key: its beginning and end if it is long, otherwise that it is set."""
    return f"{key[:3]}…{key[-4:]}" if len(key) >= MIN_MASKED_LENGTH else "set"


# -- checks --------------------------------------------------------------------------------------------------


def check_value(name: str, value: Any) -> str:
    """Return the value of a setting as text to store. Raises `BadInput`, without the value of a secret."""
    match name:
        case "provider":
            return parse_provider(value).value
        case "model":
            return _check_text(value, name, MAX_MODEL_LENGTH)
        case "api_key":
            return check_key(value)
        case "base_url":
            return check_base_url(value)
        case "reasoning_effort":
            if value not in REASONING_EFFORTS:
                refuse(name, f"must be one of {', '.join(REASONING_EFFORTS)}, not {_quote(value)}.")
            return value
        case "token_budget":
            return str(check_token_budget(value))
        case "approval_by":
            return require_choice(value, Approval, name).value
        case _:
            near = find_nearest(name, NAMES)
            hint = f"did you mean {near}?" if near else f"the settings are {', '.join(NAMES)}."
            return refuse(_quote(name), f"is not a setting; {hint}")


def parse_provider(value: Any, name: str = "provider") -> Provider:
    if isinstance(value, str) and value in {*Provider}:
        return Provider(value)
    near = find_nearest(value, [*Provider, *OTHER_WORDS]) if isinstance(value, str) else None
    hint = f" Did you mean {OTHER_WORDS.get(near, near)}?" if near else ""
    return refuse(name, f"must be one of {', '.join(Provider)}, not {_quote(value)}.{hint}")


def check_key(value: Any, name: str = "api_key") -> str:
    """Check a key; an error never contains it."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_LENGTH:
        refuse(name, f"must be a text of 1 to {MAX_KEY_LENGTH} characters.")
    if not (value.isascii() and value.isprintable()) or " " in value:
        refuse(name, "must consist of printable ASCII characters without spaces: it is sent in a header.")
    return value


def check_base_url(value: Any, name: str = "base_url") -> str:
    """Check the address of a server. An address with a password in it is refused, and not repeated."""
    text = _check_text(value, name, MAX_URL_LENGTH, is_quoted=False)
    try:
        parts = urlsplit(text)
        has_credentials = parts.username is not None or parts.password is not None
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, has_credentials, is_address = urlsplit(""), False, False
    if has_credentials:
        refuse(name, "must not contain a user name or a password; the key of the server is `api_key`.")
    if not is_address or any(char.isspace() for char in text):
        refuse(name, "must be an http or https address such as http://127.0.0.1:11434/v1.")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        refuse(name, "must not have a query (?…) or a fragment (#…).")
    return text.rstrip("/")


def check_token_budget(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse("token_budget", f"must be a whole number, not {_quote(value)}.")
    if not MIN_TOKEN_BUDGET <= value <= MAX_TOKEN_BUDGET:
        refuse("token_budget", f"must be from {MIN_TOKEN_BUDGET} to {MAX_TOKEN_BUDGET}, not {value}.")
    return value


_redact = Redaction()


def _quote(value: Any) -> str:
    """Quote a refused value. A key that was given for another setting is not repeated."""
    return _redact(quote_value(value))


def _check_text(value: Any, name: str, max_length: int, *, is_quoted: bool = True) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= max_length or not value.isprintable():
        shown = f", not {_quote(value)}" if is_quoted and not isinstance(value, str) else ""
        refuse(name, f"must be a text of 1 to {max_length} printable characters{shown}.")
    return value
