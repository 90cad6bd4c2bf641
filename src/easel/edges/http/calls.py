"""From a request to a call of a story and back: who calls, what was sent, what is answered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from easel.core.principal import Principal, PrincipalKind
from easel.edges.errors import refuse_duplicate_keys
from easel.errors import BadInput, Forbidden, TooLarge
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.services import Services

COOKIE = "easel"
MAX_STRUCTURE = (
    1_048_576  # bytes of JSON beside its texts: many small values take far longer to read than one long text
)


class Access(Enum):
    OPEN = auto()
    USER = auto()
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """One request, already checked: `asked` is the body or the query in its shape."""

    host: Services
    principal: Principal
    request: Request
    asked: Any = None

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params


Handler = Callable[[Call], Awaitable[Response]]


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def socket_caller(connection: HTTPConnection, sign_in: SignIn, now: float) -> Principal | None:
    """As for a request; and by `?token=`, since a browser's WebSocket can send no header of its own."""
    token = connection.query_params.get("token")
    return await caller(connection, sign_in, now) if token is None else await sign_in.authenticate_token(token)


async def caller(request: HTTPConnection, sign_in: SignIn, now: float) -> Principal | None:
    """The principal by bearer token or by cookie; a wrong token is not saved by a good cookie."""
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        return await sign_in.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None
    cookie = request.cookies.get(COOKIE)
    return await sign_in.authenticate_cookie(cookie, now) if cookie else None


async def visitor(request: HTTPConnection, sign_in: SignIn, now: float) -> Principal | None:
    """Who looks at a page, which a node never does."""
    principal = await caller(request, sign_in, now)
    return None if principal is None or principal.kind is PrincipalKind.NODE else principal


def refuse_nodes(principal: Principal) -> None:
    """A node's token opens nothing but the gateway, and there nothing but a node's part."""
    if principal.kind is PrincipalKind.NODE:
        raise Forbidden(problem="a node's token can only connect a node, on /ws.")


def check_head(request: Request, limit: int, setting: str | None = None) -> None:
    """What can be refused before a byte of the body is read."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadInput(problem="Send the body as it is; compressed bodies are not taken.")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit, setting)


async def read_body(request: Request, limit: int, setting: str | None = None) -> bytes:
    """The whole body, if it is within the limit: told early where the sender declares its size, counted where not."""
    check_head(request, limit, setting)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit, setting)
    return bytes(body)


def _too_large(limit: int, setting: str | None) -> TooLarge:
    return TooLarge(what="The body", limit=limit, **({} if setting is None else {"setting": setting}))


def check_mostly_text(body: bytes) -> None:
    """A large body may carry long texts, such as a file in Base64, and no more values beside them than a small one."""
    if len(body) <= MAX_STRUCTURE:
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    beside = unescaped.count(b'"')
    if beside <= MAX_STRUCTURE:
        beside += sum(map(len, unescaped.split(b'"')[::2]))
    if beside > MAX_STRUCTURE:
        raise TooLarge(what="The JSON of the body, beside the texts in it,", limit=MAX_STRUCTURE)


def shaped(body: bytes, shape: type[Any]) -> Any:
    check_mostly_text(body)
    try:
        asked = msgspec.json.decode(body, type=shape)
        refuse_duplicate_keys(body)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"The body does not fit: {problem}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadInput(problem=f"The body is not valid JSON: {problem}.") from None
    return asked


def shaped_query(request: HTTPConnection, shape: type[Any]) -> Any:
    query = cast("Mapping[str, str]", request.query_params)
    try:
        return msgspec.convert(dict(query), type=shape, strict=False)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"The query does not fit: {problem}.") from None


def set_cookie(answer: Response, value: str, *, secure: bool) -> None:
    # Lax, so that the printed link works from a mail or a terminal; every change also needs a matching Origin.
    answer.set_cookie(
        COOKIE, value, max_age=COOKIE_SECONDS, httponly=True, samesite="lax", secure=secure, path="/"
    )
