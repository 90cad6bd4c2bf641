"""The secrets of the caller over HTTP. A value is accepted, and never returned."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from easel.core.secret.secret import SecretInfo
from easel.edges.decoding import Params
from easel.edges.http.calls import Call
from easel.edges.http.wire import PageCursor, PageLimit
from easel.edges.paging import read_page


class SetSecret(Params):
    value: Annotated[str, Meta(description="6 characters to 32 KB. Stored encrypted, and never returned.")]

    def __repr__(self) -> str:
        return "SetSecret(…)"


class ListSecrets(Params):
    limit: PageLimit = 50
    after: PageCursor = None


class SecretView(Struct):
    name: str
    created_at: datetime
    updated_at: datetime


class SecretPage(Struct, omit_defaults=True):
    secrets: list[SecretView]
    next: str | None = None


async def list_secrets(call: Call) -> SecretPage:
    params: ListSecrets = call.params

    async def read(after: str | None, count: int) -> Sequence[SecretInfo]:
        return await call.host.secrets.list_names(call.principal, after or "", count)

    limit = params.limit
    return SecretPage(
        *await read_page(read, _view, lambda secret: secret.name, start=params.after, limit=limit, step=limit)
    )


def _view(secret: SecretInfo) -> SecretView:
    return SecretView(secret.name, secret.created_at, secret.updated_at)


async def set_secret(call: Call) -> None:
    await call.host.secrets.set(call.principal, call.path["name"], call.params.value)


async def delete_secret(call: Call) -> None:
    await call.host.secrets.delete(call.principal, call.path["name"])
