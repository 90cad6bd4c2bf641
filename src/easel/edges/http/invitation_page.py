"""The page of an invitation: a form that sets a display name and a password, and signs in.

Getting the page changes nothing, so that the preview of a link does not consume it. The code of the
invitation is in the fragment of the link, which `ui/invitation.js` moves into the form: no server, log or
Referer gets it.
"""

from starlette.responses import HTMLResponse, Response

from easel.edges.http.calls import Call, address_of
from easel.edges.http.pages import fill_page, openid_button, read_form, start_sign_in
from easel.errors import BadInput, TooMany, TooManyFailures

INVALID = (
    "This invitation is not valid: it was used, has expired or was replaced, or its link was not copied "
    "completely. Ask who sent it to you for a new one."
)


async def show_invitation(call: Call) -> Response:
    return _page(call, name=call.request.query_params.get("name", "")[:100])


async def accept_invitation(call: Call) -> Response:
    form = await read_form(call)
    name, token, shown = form("name"), form("token"), form("display_name")
    try:
        person = await call.host.invitations.accept(
            token, name, shown, form.exactly("password"), address_of(call.request)
        )
    except (BadInput, TooMany, TooManyFailures) as problem:
        page = _page(call, problem.message, problem.http, name=name, token=token, display_name=shown)
        if problem.retry_after is not None:
            page.headers["retry-after"] = str(problem.retry_after)
        return page
    if person is None:
        return _page(call, INVALID, 401, name=name, display_name=shown)
    return await start_sign_in(call, person, "invitation")


def _page(
    call: Call,
    problem: str = "",
    status: int = 200,
    *,
    name: str = "",
    token: str = "",
    display_name: str = "",
) -> Response:
    page = fill_page(
        "invitation.html",
        problem=problem,
        name=name,
        token=token,
        display_name=display_name,
        **openid_button(call),
    )
    return HTMLResponse(page, status, {"cache-control": "no-store"})
