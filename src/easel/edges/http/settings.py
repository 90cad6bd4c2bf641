"""The settings of the caller over HTTP. A key is accepted, and never returned."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from easel.edges.decoding import Params
from easel.edges.http.calls import Call
from easel.host.models.settings import ShownSettings

ProviderName = Annotated[
    str, Meta(description="scripted, openai-chat, openai-responses, gemini or anthropic")
]


class ChangeSettings(Params):
    """The settings to change. A setting that is not named stays; null clears one."""

    provider: ProviderName | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    api_key: Annotated[
        str | UnsetType | None, Meta(description="Stored encrypted; sent only to the server it was set for.")
    ] = UNSET
    base_url: str | UnsetType | None = UNSET
    reasoning_effort: Annotated[str | UnsetType | None, Meta(description="none, low, medium or high")] = UNSET
    token_budget: Annotated[
        int | UnsetType | None, Meta(description="Tokens of the conversation that a model call is given.")
    ] = UNSET
    approval_by: Annotated[
        str | UnsetType | None,
        Meta(description="Of a team. anyone; or another: the person who asked for a call cannot approve it."),
    ] = UNSET


class SettingSources(Struct):
    """Where each value comes from: user, host or default."""

    provider: str
    model: str
    api_key: str
    base_url: str
    reasoning_effort: str
    token_budget: str
    approval_by: str


class SettingsView(Struct):
    provider: ProviderName
    model: str
    api_key: Annotated[str | None, Meta(description="Masked: its ends, or `set`; null: none.")]
    base_url: Annotated[str | None, Meta(description="null: the provider's own address.")]
    reasoning_effort: Annotated[str | None, Meta(description="null: the model's default.")]
    token_budget: int
    approval_by: Annotated[str, Meta(description="anyone or another; without effect in your own account.")]
    sources: SettingSources
    note: Annotated[str | UnsetType, Meta(description="What to do if a key is not used.")] = UNSET


class ModelCheckView(Struct):
    ok: bool
    text: Annotated[str, Meta(description="Which model answered, or what is wrong and what to do.")]


async def get_settings(call: Call) -> SettingsView:
    return _view(await call.host.settings.get(call.principal))


async def change_settings(call: Call) -> SettingsView:
    sent = msgspec.structs.asdict(call.params)
    changes = {name: value for name, value in sent.items() if value is not UNSET}
    return _view(await call.host.settings.change(call.principal, changes))


async def check_model(call: Call) -> ModelCheckView:
    """Make one small request to the caller's model. A failure is an answer too."""
    check = await call.host.models.check(call.principal)
    return ModelCheckView(check.is_ok, check.text)


def _view(shown: ShownSettings) -> SettingsView:
    values: dict[str, Any] = dict(shown.values)
    note = UNSET if shown.note is None else shown.note
    return SettingsView(**values, sources=SettingSources(**shown.sources), note=note)
