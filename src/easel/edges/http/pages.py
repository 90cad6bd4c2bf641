"""The HTML pages: sign-in, home, the description of the API, and error pages.

Owns the values that are filled into the static HTML files.
"""

import html
from collections.abc import Mapping
from functools import cache
from importlib import resources
from urllib.parse import parse_qs

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from easel.core.openid.flow import safe_target
from easel.core.principal import ANONYMOUS, Principal, acts_fully
from easel.edges.http.calls import (
    Call,
    address_of,
    authenticate_browser,
    authenticate_visitor,
    client_details,
    read_body,
)
from easel.edges.http.canvas_policy import VIEWS
from easel.edges.methods import METHODS
from easel.errors import NotFound, NotSignedIn, TooMany, TooManyFailures

FORM_LIMIT = 8_192  # bytes; a password of 1 KB takes up to three times as many
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_REFUSED = (
    "This token is not valid: it was revoked, or not copied completely. Ask who gave it to you for a new "
    "link, or on the machine that runs Easel open the one that easel up prints."
)
_NO_MATCH = (
    "This name and password do not match. If you forgot the password, ask an operator of this Easel for a "
    "new invitation."
)
_NOT_A_PERSON = (
    "That token is for a program or a machine. "
    "Sign in with a token of your own, or by the link that easel up prints."
)
_SIGNED_IN = (
    "You are signed in as {}. To sign in as somebody else, sign out first and open the link again, "
    "or enter the token here."
)


@cache
def read_ui_file(name: str) -> str:
    return resources.files("easel").joinpath("ui", name).read_text("utf-8")


def fill_page(name: str, /, **values: str) -> str:
    """Return one of our HTML files with each value, escaped, in place of its `{{name}}`."""
    page = read_ui_file(name)
    for key, value in values.items():
        page = page.replace(f"{{{{{key}}}}}", html.escape(value))
    return page


async def home(call: Call) -> Response:
    """Show the home page. A token in the address is exchanged for a cookie by a redirect."""
    token = call.request.query_params.get("token")
    if token is not None:
        return await _sign_in_by(call, token, "link")
    if await authenticate_visitor(call) is None:
        return sign_in_page(call)
    page = fill_page("home.html", max_message_bytes=str(call.host.queue.max_message_bytes))
    return HTMLResponse(page, headers={"cache-control": "no-store"})


class Form:
    """The fields of a posted form."""

    def __init__(self, text: str) -> None:
        self._fields = parse_qs(text, keep_blank_values=True)

    def __call__(self, name: str) -> str:
        return self.exactly(name).strip()

    def exactly(self, name: str) -> str:
        return self._fields.get(name, [""])[0]


async def read_form(call: Call) -> Form:
    return Form((await read_body(call.request, FORM_LIMIT)).decode("utf-8", "replace"))


async def sign_in(call: Call) -> Response:
    """Sign in with a token, or else with a name and a password."""
    form = await read_form(call)
    target = form.exactly("next")
    if (token := form("token")) or not form("name"):
        return await _sign_in_by(call, token, "form", target)
    name, password = form("name"), form.exactly("password")
    try:
        person = await call.host.passwords.sign_in(name, password, address_of(call.request))
    except (TooMany, TooManyFailures) as problem:
        return _retry_later(call, problem, target)
    if person is None:
        details = {"by": "password", **client_details(call.request)}
        call.host.audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)
        return sign_in_page(call, _NO_MATCH, target)
    return await start_sign_in(call, person, "password", target)


async def sign_out(call: Call) -> Response:
    """Revoke the cookie and all copies of it, and close the connections that were opened with it.

    Who signed in at the OpenID provider is sent there, to end the session there too.
    """
    url = None
    if (principal := await authenticate_visitor(call)) is not None:
        openid, revocation = call.host.openid, call.host.revocation
        if openid is not None and await revocation.find_issuer(principal) == openid.provider.issuer:
            url = await openid.end_session_url(call.request.headers.get("host", ""))
        await revocation.sign_out(principal)
        await call.host.audit.record(principal, "sign_out", details=client_details(call.request))
    response = RedirectResponse("/", 303) if url is None else leave_page("You are signed out of Easel", url)
    call.request.state.cookie.delete(response)
    return response


async def _sign_in_by(call: Call, token: str, method: str, target: str = "/") -> Response:
    details = {"by": method, **client_details(call.request)}
    try:
        principal = await call.host.credentials.authenticate(token, address_of(call.request))
    except TooManyFailures as problem:
        return _retry_later(call, problem, target)
    # Programs and machines cannot sign in: they send their token with each request.
    if principal is None or not principal.is_person or not acts_fully(principal):
        call.host.audit.record_throttled(ANONYMOUS, "sign_in.failed", details=details)
        return sign_in_page(call, _REFUSED if principal is None else _NOT_A_PERSON, target)
    current = await authenticate_visitor(call) if method == "link" else None
    if current is not None and current.user_id != principal.user_id:
        # A link from elsewhere must not make this browser another person's without a question.
        return sign_in_page(call, _SIGNED_IN.format(current.user_id), target, status=409)
    return await start_sign_in(call, principal, method, target)


async def start_sign_in(
    call: Call, person: Principal, method: str, target: str = "/", *, issuer: str | None = None
) -> Response:
    """Sign the person in in this browser, and redirect it to the target."""
    assert person.user_id is not None
    at_provider = {} if issuer is None else {"issuer": issuer}
    details = {"by": method, **at_provider, **client_details(call.request)}
    await call.host.audit.record(person, "sign_in.succeeded", details=details)
    response = RedirectResponse(safe_target(target), 303, {"cache-control": "no-store"})
    previous = await authenticate_browser(call)
    cookie = await call.host.cookies.issue(
        person.user_id, token_id=person.token_id, before=previous, issuer=issuer
    )
    call.request.state.cookie.set(response, cookie)
    return response


def _retry_later(call: Call, problem: TooMany | TooManyFailures, target: str) -> Response:
    page = sign_in_page(call, problem.message, target, status=problem.http)
    page.headers["retry-after"] = str(problem.retry_after)
    return page


def sign_in_page(call: Call, problem: str = "", target: str = "/", *, status: int = 401) -> Response:
    """Return the sign-in form. After the sign-in the browser is redirected to the page `target`."""
    page = fill_page("sign_in.html", problem=problem, next=safe_target(target), **openid_button(call))
    return HTMLResponse(page, status if problem else 200, {"cache-control": "no-store"})


def openid_button(call: Call) -> dict[str, str]:
    """Return what shows the button of the OpenID provider on a page, or hides it."""
    openid = call.host.openid
    return (
        {"openid": "hidden", "provider": ""}
        if openid is None
        else {"openid": "", "provider": openid.provider.name}
    )


def leave_page(title: str, url: str) -> Response:
    """Return a page that leads to another site: our policy lets no form be redirected there."""
    return HTMLResponse(fill_page("leave.html", title=title, url=url), headers={"cache-control": "no-store"})


def prefers_html(scope: Scope) -> bool:
    """Return whether a browser opens the address as a page: it accepts HTML first. Others get JSON."""
    first = HTTPConnection(scope).headers.get("accept", "").partition(",")[0].partition(";")[0].strip()
    return scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(VIEWS) and first == "text/html"


def error_page(
    problem: NotFound | NotSignedIn, title: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return a page for a person: the problem, and a link to continue."""
    is_missing = isinstance(problem, NotFound)
    page = fill_page(
        "refusal.html",
        title=title or ("Page not found" if is_missing else "You are not signed in"),
        link="All canvases" if is_missing else "Sign in",
        problem=problem.message,
    )
    return HTMLResponse(page, problem.http, headers)


async def ui_file(call: Call) -> Response:
    name = call.path["file"]
    listed = {entry.name for entry in resources.files("easel").joinpath("ui").iterdir()}
    kind = _TYPES.get(name.rpartition(".")[2])
    if name not in listed or kind is None:
        raise NotFound(what="page", id=f"/ui/{name}")
    return Response(
        read_ui_file(name), headers={"content-type": f"{kind}; charset=utf-8", "cache-control": "no-cache"}
    )


async def api_page(_: Call) -> Response:
    return HTMLResponse(read_ui_file("api.html").replace("{{methods}}", _methods()))


@cache
def _methods() -> str:
    """Return the gateway's methods and their parameters, as JSON that cannot end the surrounding element."""
    shapes, components = msgspec.json.schema_components(
        [method.params for method in METHODS.values()], ref_template="#/{name}"
    )
    description = {"methods": list(zip(METHODS, shapes, strict=True)), "schemas": components}
    return msgspec.json.encode(description).decode().replace("<", "\\u003c")
