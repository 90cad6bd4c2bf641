"""A walk over every route, method and socket by every kind of caller, and with the ids of another account.

What a caller may do is read from the tables; a row whose ids the walk does not know fails. RS-76
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from easel.core.access import Access, Public, check_access
from easel.core.principal import Principal, PrincipalKind, Role
from easel.core.run.run import NewRun
from easel.edges.http.routes import ROUTES, SOCKETS
from easel.edges.methods import METHODS
from easel.errors import Forbidden
from easel.ids import AccountId, SessionId, UserId, new_run_id
from tests.edges.http.canvas_calls import png
from tests.edges.http.live import LiveEasel
from tests.requirements import case, rule
from tests.support.length import DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

    from easel.edges.http.calls import Row

PEOPLE = {"viewer-a": "viewer", "member-a": "member", "admin-a": "admin", "gone-a": "member"}
REFUSED_BY_ROLE = re.compile(
    r"this needs the role|the credential must be|only an operator|a node's token can only|gone"
)
SECRET = "what only the team may know"
SPEC = {
    "version": 1,
    "state": {"n": 0, "note": SECRET},
    "actions": {"set": {"kind": "state.patch", "patch": [{"op": "replace", "path": "/n", "value": 1}]}},
    "writable": ["note"],
}
MISSING = {
    "run_id": new_run_id(),
    "session_id": "missing-session",
    "canvas_id": "missing-canvas",
    "document_id": "missing-document",
    "artifact_id": f"art_{'0' * 64}",
    "secret": "MISSING",
    "members": "missing-person",
    "people": "missing-person",
    "teams": "missing-team",
    "token_id": f"tok_{1:026}",
    "event_id": f"evt_{1:026}",
    "view_id": f"view_{1:026}",
}
# Routes that end the sign-in or the membership of the caller; `test_route_access.py` has their access.
ENDS_CALLER = {"/sign-out", "/api/me/leave"}
# Path parameters of routes, by the kind of id; a parameter without one belongs to no account.
IDS = {
    "run_id": "run_id",
    "session_id": "session_id",
    "thread_id": "session_id",
    "canvas_id": "canvas_id",
    "artifact_id": "artifact_id",
    "token_id": "token_id",
}
FIXED = {"provider": "openai", "agent_id": "main", "token": "none", "file:path": "gsv.js", "file": "api.js"}
BODIES: dict[str, Any] = {
    "POST /api/runs": {"session_id": "{session_id}", "message": "noop"},
    "POST /api/runs/{run_id}/whiteboard": {"key": "k", "value": 1, "source_node_id": "n"},
    "POST /api/runs/{run_id}/blackboard": {"key": "k", "value": 1, "source_node_id": "n", "edge_id": "a-b"},
    "POST /api/chat/{session_id}": {"message": "noop"},
    "PUT /api/documents/{canvas_id}": {"text": "text", "base_revision_id": "0" * 64},
    "POST /api/documents/{canvas_id}/restore": {"revision_id": "0" * 64},
    "PUT /api/secrets/{name}": {"value": "a secret value"},
    "POST /api/rpc": {"method": "ping"},
    "POST /api/tokens": {"kind": "service"},
    "PUT /api/members/{name}": {"role": "viewer"},
    "PATCH /api/people/{name}": {"disabled": True},
    "POST /api/me/password": {"new_password": "short"},
}
# Params of methods; the others take only a canvas.
PARAMS: dict[str, dict[str, Any]] = {
    "canvas.list": {},
    "canvas.create": {"canvasId": "{canvas_id}", "spec": SPEC},
    "canvas.upsert": {"canvasId": "{canvas_id}", "title": "t"},
    "canvas.patch": {"canvasId": "{canvas_id}", "statePatch": [{"op": "replace", "path": "/n", "value": 2}]},
    "canvas.action": {"canvasId": "{canvas_id}", "actionId": "set"},
    "canvas.confirm": {"confirmationId": "{event_id}", "approve": True},
    "canvas.cancel": {"canvasId": "{canvas_id}", "eventId": "{event_id}"},
    "canvas.accept": {"canvasId": "{canvas_id}", "revision": 1},
    "canvas.restore": {"canvasId": "{canvas_id}", "version": 1},
    "canvas.input": {"canvasId": "{canvas_id}", "path": "/note", "value": "v"},
    "canvas.report": {"canvasId": "{canvas_id}", "what": "rate"},
    "canvas.close": {"canvasId": "{canvas_id}", "viewId": "{view_id}"},
    "canvas.asset.put": {"canvasId": "{canvas_id}", "path": "assets/a.txt", "text": "a"},
    "canvas.asset.get": {"canvasId": "{canvas_id}", "path": "assets/index.html"},
    "canvas.asset.delete": {"canvasId": "{canvas_id}", "path": "assets/gone.txt"},
    "tools.list": {},
    "tool.invoke": {"tool": "gsv__Echo", "args": {"value": 1}},
    "nodes.list": {},
    "ping": {},
}
# With a missing id these create something in the own account, or answer as if it had been there.
CREATES = {
    "POST /api/runs",
    "POST /api/chat/{session_id}",
    "PUT /api/secrets/{name}",
    "canvas.create",
    "canvas.upsert",
    "canvas.delete",
}


@dataclass(frozen=True)
class Who:
    """A caller: its headers, and what its credential gives; None: the credential is refused."""

    headers: dict[str, str]
    principal: Principal | None
    is_in_devs: bool = True


@dataclass
class Devs:
    """A live Easel with the team `devs`, whose rows the walk asks for."""

    easel: LiveEasel
    ids: dict[str, str] = field(default_factory=dict[str, str])
    who: dict[str, Who] = field(default_factory=dict[str, Who])


@pytest.fixture(scope="module", params=DATABASES)
def devs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devs]:
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    with LiveEasel(tmp_path_factory.mktemp("easel"), url, settings={"secret_key": "k" * 43}) as easel:
        yield add_callers(easel)


def add_callers(easel: LiveEasel) -> Devs:
    for name in (*PEOPLE, "outsider", "stranger"):
        easel.add_person(name)
    easel.add_team("devs", **PEOPLE)
    made = Devs(easel)
    _add_rows(made)
    in_team = {"Easel-Account": "devs"}
    made.who["nobody"] = Who(in_team, None)
    for name, role in PEOPLE.items():
        user = Principal(AccountId("devs"), name, role=Role(role), user_id=UserId(name))
        made.who[name] = Who({"Cookie": easel.new_cookie(name), **in_team}, user)
    outsider = Principal(AccountId("outsider"), "outsider", role=Role.ADMIN, user_id=UserId("outsider"))
    owner = Principal(AccountId("owner"), "owner", role=Role.ADMIN, is_operator=True, user_id=UserId("owner"))
    for user in (outsider, owner):
        cookie = {"Cookie": easel.new_cookie(user.name)}
        made.who[f"{user.name} in devs"] = Who({**cookie, **in_team}, user, is_in_devs=False)
        made.who[user.name] = Who(cookie, user)
    for kind, role in ((PrincipalKind.NODE, Role.VIEWER), (PrincipalKind.SERVICE, Role.MEMBER)):
        _, secret = easel.new_token(kind.value, "admin-a", account_id="devs", role=role.value)
        program = Principal(AccountId("devs"), kind.value, kind=kind, role=role)
        made.who[kind.value] = Who({"Authorization": f"Bearer {secret}"}, program)
    easel.sql("update accounts set disabled_at = created_at where account_id = 'gone-a'")
    made.who["gone-a"] = Who(made.who["gone-a"].headers, None)
    return made


def _add_rows(devs: Devs) -> None:
    """Create a row of each kind in the account of the team."""
    easel, name = devs.easel, f"team-{new_run_id()[-8:]}"
    devs.ids = {
        "members": "member-a",
        "people": "viewer-a",
        "teams": "devs",
        "session_id": name,
        "canvas_id": f"c-{name}",
        "document_id": f"d-{name}",
        "secret": "TEAM_KEY",
    }
    headers = {"Cookie": easel.new_cookie("admin-a"), "Easel-Account": "devs"}
    with easel.stranger() as http:

        def ask(method: str, path: str, **how: Any) -> Any:
            answer = http.request(method, path, headers=headers, **how)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        def call(method: str, **params: Any) -> Any:
            return ask("POST", "/api/rpc", json={"method": method, "params": params})

        new = NewRun(new_run_id(), AccountId("devs"), SessionId(name), SECRET, 3, "a key", "digest")
        easel.do(easel.instances[0].opened.runs.enqueue(new))
        devs.ids["run_id"] = new.run_id
        call("canvas.create", canvasId=devs.ids["canvas_id"], spec=SPEC, title=SECRET,
             assets={"assets/index.html": f"<p>{SECRET}"})  # fmt: skip
        call("canvas.create", canvasId=devs.ids["document_id"], spec={"version": 1, "mode": "markdown"})
        pressed = call("canvas.action", canvasId=devs.ids["canvas_id"], actionId="set")
        devs.ids["event_id"] = pressed["eventId"]
        devs.ids["view_id"] = call("canvas.open", canvasId=devs.ids["canvas_id"])["viewId"]
        stored = ask("POST", "/api/artifacts", content=png(3))
        devs.ids["artifact_id"] = stored["artifact_id"]
        ask("PUT", f"/api/secrets/{devs.ids['secret']}", json={"value": SECRET})
        devs.ids["token_id"] = ask("POST", "/api/tokens", json={"kind": "service"})["token_id"]


def fill(value: Any, ids: dict[str, str]) -> Any:
    """Return the value with ids in place of `{kind}`."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], value)
    if isinstance(value, dict):
        return {key: fill(item, ids) for key, item in value.items()}
    return value


def path_of(row: Row, ids: dict[str, str]) -> str:
    """Return the path of a route with these ids. Raises `KeyError` for a parameter that the walk lacks."""

    def replace(match: re.Match[str]) -> str:
        if match[1] in FIXED:
            return FIXED[match[1]]
        folder = row.path.split("/")[2]
        kind = {"secrets": "secret"}.get(folder, folder) if match[1] == "name" else IDS[match[1]]
        return ids["document_id" if row.path.startswith("/api/documents/") else kind]

    return re.sub(r"\{([^}]+)\}", replace, row.path)


def send(http: httpx2.Client, row: Row, ids: dict[str, str], headers: dict[str, str]) -> tuple[int, str]:
    """Send a request to a route. Returns the status and, unless it succeeds, the body."""
    name = f"{row.method} {row.path}"
    body: dict[str, Any] = {"json": fill(BODIES.get(name, {}), ids)} if row.body is not None else {}
    if row.takes_file:
        body = {"content": png(7)}
    if row.query is not None and row.path.endswith("/diff"):
        body["params"] = {"from": "0" * 64, "to": "0" * 64}
    with http.stream(row.method, path_of(row, ids), headers=headers, **body) as answer:
        if answer.is_success:
            return answer.status_code, ""
        return answer.status_code, answer.read().decode()


def call_method(
    http: httpx2.Client, name: str, ids: dict[str, str], headers: dict[str, str]
) -> tuple[int, str]:
    params = fill(PARAMS.get(name, {"canvasId": "{canvas_id}"}), ids)
    answer = http.post("/api/rpc", json={"method": name, "params": params}, headers=headers)
    return answer.status_code, "" if answer.is_success else answer.text


def check_answer(who: Who, access: Access, status: int, text: str) -> str | None:
    """Return how an answer differs from what the tables say, None if it does not."""
    is_refused = status == 403 and REFUSED_BY_ROLE.search(text) is not None
    if isinstance(access, Public):
        return "refused" if is_refused else None
    if who.principal is None:
        return None if status == 401 else f"{status}, not 401"
    if not who.is_in_devs:
        is_missing = status == 404 and "account" in text and "devs" in text
        return None if is_missing else f"{status} {text[:200]}, not a missing account"
    try:
        check_access(access, who.principal)
    except Forbidden:
        return None if is_refused else f"{status} {text[:200]}, not 403"
    return f"{status} {text[:200]}" if is_refused or status == 401 or status >= 500 else None


CALLERS = ["nobody", *PEOPLE, "outsider in devs", "owner in devs", "outsider", "owner", "node", "service"]


@rule("RS-76", "RX-54")
@case("O10")
@pytest.mark.parametrize("name", CALLERS)
def test_every_route_and_method_answers_each_caller_as_the_tables_say(devs: Devs, name: str) -> None:
    who, wrong = devs.who[name], dict[str, str]()
    with devs.easel.stranger() as http:
        for row in sorted(ROUTES, key=lambda row: row.method == "DELETE"):
            if row.path in ENDS_CALLER:
                continue
            # Those who may delete the rows of the walk get missing ids.
            ids = MISSING if name in ("admin-a", "owner") else devs.ids
            status, text = send(http, row, ids, who.headers)
            if (problem := check_answer(who, row.access, status, text)) is not None:
                wrong[f"{row.method} {row.path}"] = problem
        rpc = next(row.access for row in ROUTES if row.path == "/api/rpc")
        for method, verb in METHODS.items():
            status, text = call_method(http, method, MISSING, who.headers)
            access = rpc if who.principal is None or _is_refused(rpc, who.principal) else verb.access
            if (problem := check_answer(who, access, status, text)) is not None and not verb.needs_socket:
                wrong[method] = problem
    assert wrong == {}


def _is_refused(access: Access, principal: Principal) -> bool:
    try:
        check_access(access, principal)
    except Forbidden:
        return True
    return False


@rule("RS-76", "RX-54")
@case("O10")
@pytest.mark.parametrize("name", CALLERS)
async def test_every_socket_answers_each_caller_as_the_tables_say(devs: Devs, name: str) -> None:
    who = devs.who[name]
    headers = {key: value for key, value in who.headers.items() if key != "Easel-Account"}
    query = f"?account={account}" if (account := who.headers.get("Easel-Account")) else ""
    host = urlsplit(devs.easel.base_url).netloc
    for row in SOCKETS:
        path = fill(row.path.replace("{thread_id}", "{session_id}"), devs.ids)
        try:
            async with connect(f"ws://{host}{path}{query}", additional_headers=headers, proxy=None):
                status, text = 101, ""
        except InvalidStatus as refused:
            status, text = refused.response.status_code, (refused.response.body or b"").decode()
        assert check_answer(who, row.access, status, text) is None, row.path


@pytest.fixture
def foreign(devs: Devs) -> Iterator[httpx2.Client]:
    """A client of a person who is admin of their own account, and no member of the team."""
    with devs.easel.stranger() as http:
        http.headers["cookie"] = devs.easel.new_cookie("stranger")
        yield http


@rule("RX-54", "RS-76")
@case("O10")
def test_row_of_another_account_answers_like_a_missing_one(devs: Devs, foreign: httpx2.Client) -> None:
    """Byte for byte but for the id, on every route and method that takes one."""
    different, shown = dict[str, Any](), list[str]()
    for row in ROUTES:
        name = f"{row.method} {row.path}"
        is_of_account = any(part in (*IDS, "name") for part in re.findall(r"\{([^}]+)\}", row.path))
        if is_of_account and name not in CREATES:
            answers = [_anonymise(send(foreign, row, ids, {}), ids) for ids in (devs.ids, MISSING)]
            shown += [name for _, text in answers if SECRET in text]
            if answers[0] != answers[1] or answers[0][0] < 400:
                different[name] = answers
    for method in METHODS.keys() - CREATES:
        params = PARAMS.get(method, {"canvasId": "{canvas_id}"})
        if re.search(r"\{\w+_id\}", str(params)):
            answers = [_anonymise(call_method(foreign, method, ids, {}), ids) for ids in (devs.ids, MISSING)]
            if answers[0] != answers[1] or answers[0][0] < 400:
                different[method] = answers
    assert different == {}
    assert shown == []


def _anonymise(answer: tuple[int, str], ids: dict[str, str]) -> tuple[int, str]:
    status, text = answer
    for kind, value in sorted(ids.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, kind)
    return status, text


@rule("RX-54", "RS-76")
def test_lists_have_no_row_of_another_account(devs: Devs, foreign: httpx2.Client) -> None:
    devs.easel.add_person("newcomer")  # without records of their own requests
    foreign.headers["cookie"] = devs.easel.new_cookie("newcomer")
    own = {value for key, value in devs.ids.items() if key != "artifact_id"}
    for row in ROUTES:
        if row.method == "GET" and "{" not in row.path and not isinstance(row.access, Public):
            text = foreign.get(row.path).text
            assert not [value for value in (*own, SECRET) if value in text], row.path
    for method in ("canvas.list", "tools.list", "nodes.list"):
        text = foreign.post("/api/rpc", json={"method": method}).text
        assert not [value for value in (*own, SECRET) if value in text], method
