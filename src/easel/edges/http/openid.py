"""Sign-in by OpenID Connect over HTTP: the start, the callback, and the way from an invitation to it.

The browser of a flow has a cookie of its own for ten minutes.
"""

import secrets

from starlette.responses import HTMLResponse, RedirectResponse, Response

from easel.core.openid.flow import FLOW_SECONDS, safe_target
from easel.edges.http.calls import Call, address_of
from easel.edges.http.invitation_page import INVALID
from easel.edges.http.pages import fill_page, leave_page, read_form, start_sign_in
from easel.errors import Forbidden, HostError, NotFound
from easel.host.openid.sign_in import OpenIdSignIn, SignInCallback

BROWSER_BYTES = 32
BROWSER_LENGTH = 43


async def start(call: Call) -> Response:
    """Begin a sign-in and redirect the browser to the provider."""
    target = safe_target(call.request.query_params.get("next", ""))
    try:
        url, browser = await _start(call, target)
    except HostError as problem:
        return _page(problem)
    response = RedirectResponse(url, 303, {"cache-control": "no-store"})
    call.request.state.cookie.of_flow(FLOW_SECONDS).set(response, browser)
    return response


async def start_invited(call: Call) -> Response:
    """Begin to connect an identity to the person of an invitation."""
    form = await read_form(call)
    token = form("token")
    try:
        invited = await call.host.invitations.find(token)
        if invited is None or invited.person.user_id != form("name"):
            raise Forbidden.with_message(INVALID)
        url, browser = await _start(call, "/", token)
    except HostError as problem:
        return _page(problem)
    response = leave_page("Continue at the provider", url)
    call.request.state.cookie.of_flow(FLOW_SECONDS).set(response, browser)
    return response


async def finish(call: Call) -> Response:
    """Answer the callback: a redirect to where the person wanted to go, or a page that says what to do."""
    query = call.request.query_params
    callback = SignInCallback(
        state=query.get("state", ""),
        code=query.get("code"),
        error=query.get("error"),
        issuer=query.get("iss"),
        browser=_browser_of(call),
    )
    try:
        openid = _service(call)
        signed_in = await openid.finish(callback, address_of(call.request))
    except HostError as problem:
        return _page(problem)
    return await start_sign_in(
        call, signed_in.person, "openid", signed_in.target, issuer=openid.provider.issuer
    )


async def _start(call: Call, target: str, invitation: str | None = None) -> tuple[str, str]:
    """Return the address at the provider, and the cookie of this browser, also of its other tabs."""
    browser = _browser_of(call)
    if len(browser) != BROWSER_LENGTH:
        browser = secrets.token_urlsafe(BROWSER_BYTES)
    host = call.request.headers.get("host", "")
    url = await _service(call).start(host, browser, target, invitation=invitation)
    return url, browser


def _browser_of(call: Call) -> str:
    return call.request.cookies.get(call.request.state.cookie.of_flow(FLOW_SECONDS).name, "")


def _service(call: Call) -> OpenIdSignIn:
    if call.host.openid is None:
        raise NotFound(what="page", id=call.request.url.path)
    return call.host.openid


def _page(problem: HostError) -> Response:
    page = fill_page("refusal.html", title="Not signed in", problem=problem.message, link="Sign in")
    response = HTMLResponse(
        page, problem.http, {"cache-control": "no-store", "referrer-policy": "no-referrer"}
    )
    if problem.retry_after is not None:
        response.headers["retry-after"] = str(problem.retry_after)
    return response
