"""The pages: sign-in, home, the API's description, and what is said where there is none. Plain files with nothing filled in but what is said here."""

import html
import re
import time
from collections.abc import Mapping
from functools import cache
from importlib import resources
from urllib.parse import parse_qs

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from easel.core.principal import ANONYMOUS
from easel.edges.http.audit import where_from
from easel.edges.http.calls import COOKIE, Call, json_answer, read_body, set_cookie, visitor
from easel.edges.http.canvas_policy import VIEWS
from easel.edges.methods import METHODS
from easel.errors import NotFound, NotSignedIn

FORM_LIMIT = 4_096
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_CANVAS = re.compile(
    r"(?:/canvas(?:/[A-Za-z0-9][A-Za-z0-9._:-]{0,127}){2})"
)  # where a sign-in may lead to beside the home page
_NOT_IT = "That token is not the right one. The link that easel up prints has it."
_NO_PERSON = "That token is for a program or a machine. A person signs in with one of their own, or by the link that easel up prints."


@cache
def _file(name: str) -> str:
    return resources.files("easel").joinpath("ui", name).read_text("utf-8")


async def home(call: Call) -> Response:
    """The printed link has the token: it becomes a cookie and leaves the address at once."""
    token = call.request.query_params.get("token")
    if token is not None:
        return await _signed_in(call, token, "link")
    if await visitor(call.request, call.host.sign_in, time.time()) is None:
        return sign_in_page("")
    return HTMLResponse(_file("home.html"), headers={"cache-control": "no-store"})


async def sign_in(call: Call) -> Response:
    form = parse_qs((await read_body(call.request, FORM_LIMIT)).decode("utf-8", "replace"))
    return await _signed_in(call, form.get("token", [""])[0].strip(), "form", form.get("next", ["/"])[0])


async def sign_out(call: Call) -> Response:
    """The cookie opens nothing any more, wherever it has been copied to, and nothing stays open by it."""
    if (principal := await visitor(call.request, call.host.sign_in, time.time())) is not None:
        await call.host.sign_in.sign_out(principal)
        await call.host.audit.record(principal, "sign_out", details=where_from(call.request))
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


async def _signed_in(call: Call, token: str, by: str, goes_on: str = "/") -> Response:
    told = {"by": by, **where_from(call.request)}
    principal = await call.host.sign_in.authenticate_token(token)
    if principal is None or not principal.is_person:  # a program or a machine shows its token each time
        call.host.audit.record_throttled(ANONYMOUS, "sign_in.failed", details=told)
        return sign_in_page(_NOT_IT if principal is None else _NO_PERSON, goes_on)
    await call.host.audit.record(principal, "sign_in.succeeded", details=told)
    answer = RedirectResponse(
        goes_on if _CANVAS.fullmatch(goes_on) else "/", 303, {"cache-control": "no-store"}
    )
    before = await visitor(call.request, call.host.sign_in, time.time())
    set_cookie(
        answer,
        call.host.sign_in.new_cookie(time.time(), principal, before),
        secure=call.request.state.secure_cookies,
    )
    return answer


def sign_in_page(problem: str, goes_on: str = "/") -> Response:
    """Whoever was on the way to a canvas gets there."""
    page = (
        _file("sign_in.html")
        .replace("{{problem}}", problem)
        .replace("{{next}}", goes_on if _CANVAS.fullmatch(goes_on) else "/")
    )
    return HTMLResponse(page, 401 if problem else 200, {"cache-control": "no-store"})


def is_read_by_a_person(scope: Scope) -> bool:
    """Whether a browser goes there itself: then it names HTML before everything else. A program gets JSON, and a frame nothing to read."""
    first = HTTPConnection(scope).headers.get("accept", "").partition(",")[0].partition(";")[0].strip()
    return scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(VIEWS) and first == "text/html"


def refusal_page(
    problem: NotFound | NotSignedIn, title: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """For a person at an address that shows them nothing: what is the matter, and where to go on."""
    is_missing = isinstance(problem, NotFound)
    filled = {
        "title": title or ("There is nothing here" if is_missing else "You are not signed in"),
        "leads-to": "All canvases" if is_missing else "Sign in",
        "problem": problem.message,
    }
    page = _file("refusal.html")
    for name, value in filled.items():
        page = page.replace(f"{{{{{name}}}}}", html.escape(value))
    return HTMLResponse(page, problem.http, headers)


async def ui_file(call: Call) -> Response:
    name = call.path["file"]
    listed = {entry.name for entry in resources.files("easel").joinpath("ui").iterdir()}
    kind = _TYPES.get(name.rpartition(".")[2])
    if name not in listed or kind is None:
        raise NotFound(what="page", id=f"/ui/{name}")
    return Response(
        _file(name), headers={"content-type": f"{kind}; charset=utf-8", "cache-control": "no-cache"}
    )


async def openapi_json(call: Call) -> Response:
    return json_answer(call.request.state.describe())


async def api_page(_: Call) -> Response:
    return HTMLResponse(_file("api.html").replace("{{methods}}", _methods()))


@cache
def _methods() -> str:
    """The gateway's methods and what they take, as JSON that cannot end the element it stands in."""
    shapes, components = msgspec.json.schema_components(
        [one.params for one in METHODS.values()], ref_template="#/{name}"
    )
    described = {"methods": list(zip(METHODS, shapes, strict=True)), "schemas": components}
    return msgspec.json.encode(described).decode().replace("<", "\\u003c")
