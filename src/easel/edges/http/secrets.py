"""The secrets of the caller over HTTP. A value is accepted, and never returned."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from easel.core.secret.secret import SecretInfo
from easel.edges.decoding import Params
from easel.edges.http.calls import Call, json_response
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


async def list_secrets(call: Call) -> Response:
    params: ListSecrets = call.params

    async def read(after: str | None, count: int) -> Sequence[SecretInfo]:
        return await call.host.secrets.list_names(call.principal, after or "", count)

    secrets, more = await read_page(
        read,
        to_view=lambda secret: SecretView(secret.name, secret.created_at, secret.updated_at),
        position=lambda secret: secret.name,
        start=params.after,
        limit=params.limit,
        step=params.limit,
    )
    return json_response(SecretPage(secrets, more))


async def set_secret(call: Call) -> Response:
    params: SetSecret = call.params
    await call.host.secrets.set(call.principal, call.path["name"], params.value)
    return Response(status_code=204)


async def delete_secret(call: Call) -> Response:
    await call.host.secrets.delete(call.principal, call.path["name"])
    return Response(status_code=204)
