"""The tokens of an account over HTTP: a person's own, for an admin everybody's. A secret is returned once."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.token import MAX_DAYS, Token
from easel.edges.decoding import Params
from easel.edges.http.calls import Call


class CreateToken(Params):
    kind: Literal["user", "node", "service"]
    role: Annotated[
        Literal["viewer", "member", "admin"] | None,
        Meta(description="The most that the token may do; by default as much as you."),
    ] = None
    name: str | None = None
    node_id: Annotated[str | None, Meta(description="The only node that may use a token of kind node.")] = (
        None
    )
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="Days until it expires.")] | None = None


class TokenView(Struct, omit_defaults=True):
    token_id: str
    kind: str
    user_id: Annotated[str, Meta(description="The person who acts with it, or who made it for a program.")]
    role: str
    name: str
    created_at: datetime
    node_id: str | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    token: Annotated[str | UnsetType, Meta(description="The secret, in the answer to its creation only.")] = (
        UNSET
    )


class TokenList(Struct):
    tokens: list[TokenView]


async def create_token(call: Call) -> TokenView:
    asked: CreateToken = call.params
    token, secret = await call.host.tokens.create_own(
        call.principal, asked.kind, role=asked.role, name=asked.name, node_id=asked.node_id, days=asked.days
    )
    view = _view(token)
    view.token = secret
    return view


async def list_tokens(call: Call) -> TokenList:
    tokens = await call.host.tokens.list_visible(call.principal)
    return TokenList([_view(token) for token in tokens if token.revoked_at is None])


async def revoke_token(call: Call) -> None:
    await call.host.tokens.revoke_visible(call.principal, call.path["token_id"])


def _view(token: Token) -> TokenView:
    return TokenView(
        token.token_id,
        token.kind.value,
        token.user_id,
        token.role.value,
        token.name,
        token.created_at,
        token.node_id,
        token.expires_at,
        token.last_used_at,
    )
