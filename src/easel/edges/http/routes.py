"""The HTTP surface as a table: every route with its access, its request and its response.

The router and the OpenAPI description are generated from it.
"""

from functools import cache
from typing import Any

from starlette.responses import Response

from easel.core.access import InAccount, OfHost, Public
from easel.core.oauth.flow import LOOPBACK_PATH, public_path
from easel.core.openid.flow import CALLBACK_PATH
from easel.core.principal import PrincipalKind, Role
from easel.edges.decoding import NoParams
from easel.edges.http import (
    artifacts,
    audit,
    boards,
    canvas_page,
    canvases,
    chat,
    documents,
    invitation_page,
    oauth,
    openid,
    ops,
    pages,
    people,
    rpc,
    runs,
    secrets,
    sessions,
    settings,
    streams,
    tokens,
    wire,
)
from easel.edges.http.calls import Call, Row, json_response
from easel.edges.http.openapi import describe
from easel.edges.http.sockets import SocketRow
from easel.errors import (
    ActionFailed,
    AlreadyExists,
    BoardFull,
    Cancelled,
    ConfirmationClosed,
    CorruptData,
    CursorOutOfRange,
    IdempotencyConflict,
    InputConflict,
    LastAdmin,
    NotFound,
    NotRunning,
    RangeNotSatisfiable,
    RevisionConflict,
    RunFinished,
    SecretsUnavailable,
    TextConflict,
    TimedOut,
    TooLarge,
    ToolFailed,
    TooMany,
    TooManyFailures,
    Unavailable,
    VersionConflict,
)

PEOPLE = frozenset({PrincipalKind.USER})
CALLERS = frozenset({PrincipalKind.USER, PrincipalKind.SERVICE})  # a node's token is valid on /ws only

PUBLIC = Public()
VIEWER, MEMBER, ADMIN = (InAccount(role, CALLERS) for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN))
VIEWER_IN_PERSON, MEMBER_IN_PERSON, ADMIN_IN_PERSON = (
    InAccount(role, PEOPLE) for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN)
)
OPERATOR = OfHost(PEOPLE)
METRICS = "/metrics"

_RPC_ERRORS = (
    NotFound, AlreadyExists, RevisionConflict, InputConflict, IdempotencyConflict, ConfirmationClosed,
    NotRunning, Cancelled, TooMany, ActionFailed, ToolFailed, CorruptData, TimedOut,
)  # fmt: skip
_STREAM_ERRORS = (NotFound, CursorOutOfRange, TooMany)
_BOARD_ERRORS = (NotFound, RunFinished, VersionConflict, BoardFull)


async def openapi_json(_: Call) -> Response:
    return json_response(describe_api())


@cache
def describe_api() -> dict[str, Any]:
    return describe((*API, *OPS))


API: tuple[Row, ...] = (
    Row("POST", "/api/runs", MEMBER, runs.start_run, "Start a run. It is stored when the response is sent.",
        body=wire.StartRun, status=202, response=wire.RunStarted, errors=(IdempotencyConflict,)),
    Row("GET", "/api/runs", VIEWER, runs.list_runs, "List runs, newest first.", query=wire.ListRuns,
        response=wire.RunPage),
    Row("GET", "/api/runs/{run_id}", VIEWER, runs.get_run, "Get a run.", response=wire.RunView,
        errors=(NotFound,)),
    Row("POST", "/api/runs/{run_id}/cancel", MEMBER, runs.cancel_run,
        "Request that a run stops, without waiting for it.", body=NoParams, status=202,
        response=wire.RunView, errors=(NotFound, RunFinished)),
    Row("GET", "/api/runs/{run_id}/events", VIEWER, streams.watch_run,
        "Stream the run's log as server-sent events; resumable by Last-Event-ID.", query=wire.StreamQuery,
        response="text/event-stream", errors=_STREAM_ERRORS),
    Row("POST", "/api/runs/{run_id}/whiteboard", MEMBER, boards.write_whiteboard,
        "Write a value for the whole run.", body=boards.WriteWhiteboard, response=boards.BoardWritten,
        errors=_BOARD_ERRORS),
    Row("GET", "/api/runs/{run_id}/whiteboard", VIEWER, boards.read_whiteboard,
        "Read the whiteboard, or one value of it.", query=boards.ReadBoard, response=boards.BoardView,
        errors=(NotFound,)),
    Row("POST", "/api/runs/{run_id}/blackboard", MEMBER, boards.write_blackboard,
        "Write a value for one edge.", body=boards.WriteBlackboard, response=boards.BoardWritten,
        errors=_BOARD_ERRORS),
    Row("GET", "/api/runs/{run_id}/blackboard", VIEWER, boards.read_blackboard,
        "Read the blackboard, one edge of it, or one value of an edge.", query=boards.ReadBoard,
        response=boards.BoardView, errors=(NotFound,)),
    Row("POST", "/api/artifacts", MEMBER, artifacts.upload_artifact,
        "Store bytes. The same bytes are stored once.", takes_file=True, status=201,
        response=artifacts.ArtifactView, errors=(TooLarge,)),
    Row("GET", "/api/artifacts/{artifact_id}", VIEWER, artifacts.download_artifact,
        "Get the bytes of an artifact, or a range of them.", response="*/*",
        errors=(NotFound, RangeNotSatisfiable, CorruptData)),
    Row("GET", "/sse/run/{run_id}", VIEWER, streams.watch_run_state,
        "Stream the run's status and its boards.", query=wire.StreamQuery, response="text/event-stream",
        errors=_STREAM_ERRORS),
    Row("GET", "/sse/canvas/{canvas_id}", VIEWER, streams.watch_canvas,
        "Stream a canvas's changes, with snapshots by reference.", query=wire.StreamQuery,
        response="text/event-stream", errors=_STREAM_ERRORS),
    Row("POST", "/api/sessions", MEMBER, sessions.create_session, "Create a session.",
        body=sessions.CreateSession, status=201, response=sessions.SessionView, errors=(AlreadyExists,)),
    Row("GET", "/api/sessions", VIEWER, sessions.list_sessions, "List sessions, latest message first.",
        query=sessions.ListSessions, response=sessions.SessionPage),
    Row("GET", "/api/sessions/{session_id}", VIEWER, sessions.get_session, "Get a session.",
        response=sessions.SessionView, errors=(NotFound,)),
    Row("PATCH", "/api/sessions/{session_id}", MEMBER, sessions.rename_session,
        "Change the title of a session.", body=sessions.RenameSession, response=sessions.SessionView,
        errors=(NotFound,)),
    Row("DELETE", "/api/sessions/{session_id}", MEMBER, sessions.delete_session,
        "Delete a session with its messages and runs.", status=204, errors=(NotFound,)),
    Row("GET", "/api/sessions/{session_id}/messages", VIEWER, sessions.list_messages,
        "List messages, the newest page first, each page in order.", query=sessions.ListMessages,
        response=sessions.MessagePage, errors=(NotFound,)),
    Row("POST", "/api/chat/{session_id}", MEMBER, sessions.chat_over_http,
        "Start a run and stream its log, for older clients.", body=sessions.ChatMessage,
        response="text/event-stream", accepted=wire.RunStarted, errors=(IdempotencyConflict, TooMany)),
    Row("POST", "/api/rpc", VIEWER, rpc.rpc,
        "Call a method of the gateway, such as canvas.get. Returns its payload.", body=rpc.RpcCall,
        response="application/json", errors=_RPC_ERRORS),
    Row("POST", "/api/canvases/{canvas_id}/snapshots", MEMBER, canvases.add_snapshot,
        "Store a snapshot of a canvas and notify its viewers.", takes_file=True, status=201,
        response=canvases.SnapshotView, errors=(NotFound, TooLarge)),
    Row("GET", "/api/documents/{canvas_id}", VIEWER, documents.get_document, "Get a document.",
        response=documents.DocumentView, errors=(NotFound,)),
    Row("PUT", "/api/documents/{canvas_id}", MEMBER, documents.put_document,
        "Save the text of a document as a draft. It wins over an agent that edits.",
        body=documents.PutDocument, response=documents.SavedDocument, errors=(NotFound, TextConflict)),
    Row("GET", "/api/documents/{canvas_id}/history", VIEWER, documents.list_versions,
        "List the versions of a document, newest first.", query=documents.DocumentVersionsQuery,
        response=documents.VersionPage, errors=(NotFound,)),
    Row("GET", "/api/documents/{canvas_id}/diff", VIEWER, documents.compare_revisions,
        "Compare two revisions of a document.", query=documents.CompareRevisions,
        response=documents.DifferenceView, errors=(NotFound,)),
    Row("POST", "/api/documents/{canvas_id}/restore", MEMBER, documents.restore_document,
        "Make the text of an earlier revision the current draft.", body=documents.RestoreDocument,
        response=documents.DocumentView, errors=(NotFound,)),
    Row("POST", "/api/documents/{canvas_id}/promote", MEMBER, documents.promote_document,
        "Make the current text a version.", body=NoParams, response=documents.PromotedView,
        errors=(NotFound,)),
    Row("POST", "/api/documents/{canvas_id}/take-control", MEMBER, documents.take_control,
        "End the lease of the agent that edits the document.", body=NoParams,
        response=documents.DocumentView, errors=(NotFound,)),
    Row("GET", "/api/tools", VIEWER, runs.list_tools, "List the tools that agents can call, by name.",
        query=wire.ListTools, response=wire.ToolList),
    Row("GET", "/api/settings", ADMIN, settings.get_settings,
        "Get your settings, and where each value comes from. A key is masked.",
        response=settings.SettingsView),
    Row("PUT", "/api/settings", ADMIN, settings.change_settings,
        "Change the named settings; null clears one. A running run uses them from its next step on.",
        body=settings.ChangeSettings, response=settings.SettingsView, errors=(SecretsUnavailable,)),
    Row("POST", "/api/settings/check", ADMIN, settings.check_model,
        "Make one small request to your model, and explain what is wrong if it fails.", body=NoParams,
        response=settings.ModelCheckView),
    Row("GET", "/api/secrets", ADMIN_IN_PERSON, secrets.list_secrets,
        "List the names of your secrets, in their order. No answer has a value.", query=secrets.ListSecrets,
        response=secrets.SecretPage),
    Row("PUT", "/api/secrets/{name}", ADMIN_IN_PERSON, secrets.set_secret,
        "Store a secret, or replace it. Only a person can.", body=secrets.SetSecret, status=204,
        errors=(SecretsUnavailable,)),
    Row("DELETE", "/api/secrets/{name}", ADMIN_IN_PERSON, secrets.delete_secret, "Delete a secret.",
        status=204, errors=(NotFound,)),
    Row("GET", "/api/oauth", ADMIN_IN_PERSON, oauth.list_providers,
        "List the OAuth providers of this host and your connections to them, without tokens.",
        response=oauth.ProviderList),
    Row("POST", "/api/oauth/{provider}/start", ADMIN_IN_PERSON, oauth.start_flow,
        "Begin to connect a provider. Open the returned address in the same browser.", body=NoParams,
        response=oauth.FlowStarted, errors=(NotFound,)),
    Row("DELETE", "/api/oauth/{provider}", ADMIN_IN_PERSON, oauth.remove_connection,
        "Delete a connection with its tokens.", status=204, errors=(NotFound,)),
    Row("GET", "/api/me", VIEWER, people.get_me,
        "Get who you are, your role in the account of the request, and your accounts.", response=people.Me),
    Row("POST", "/api/me/password", VIEWER_IN_PERSON, people.change_password,
        "Set your password. Your other sign-ins end.", body=people.ChangePassword, status=204,
        errors=(TooMany, TooManyFailures)),
    Row("POST", "/api/me/leave", VIEWER_IN_PERSON, people.leave_team,
        "Leave the team of the request. Your runs, questions, tokens and nodes there end.", body=NoParams,
        status=204, errors=(NotFound, LastAdmin)),
    Row("GET", "/api/members", VIEWER, people.list_members,
        "List the members of the account with their roles, by name.", query=people.ListPeople,
        response=people.MemberPage),
    Row("PUT", "/api/members/{name}", ADMIN_IN_PERSON, people.set_member,
        "Add a person to the team, or change their role. A team keeps an admin who is not disabled.",
        body=people.SetMember, response=people.MemberView, errors=(NotFound, LastAdmin)),
    Row("DELETE", "/api/members/{name}", ADMIN_IN_PERSON, people.remove_member,
        "Remove a member. Their runs, questions, tokens and nodes in the team end.", status=204,
        errors=(NotFound, LastAdmin)),
    Row("POST", "/api/people", OPERATOR, people.add_person,
        "Add a person. Returns a token and an invitation link, once.", body=people.AddPerson, status=201,
        response=people.PersonAdded, errors=(AlreadyExists,)),
    Row("GET", "/api/people", OPERATOR, people.list_people, "List the people of this host, by name.",
        query=people.ListPeople, response=people.PersonPage),
    Row("PATCH", "/api/people/{name}", OPERATOR, people.change_person,
        "Disable or enable a person. Disabling ends their tokens, connections and runs.",
        body=people.ChangePerson, response=people.PersonView, errors=(NotFound, LastAdmin)),
    Row("DELETE", "/api/people/{name}", OPERATOR, people.delete_person,
        "Delete a person with all that they own. The name is not given again.", query=people.DeletePerson,
        status=204, errors=(NotFound, LastAdmin)),
    Row("POST", "/api/people/{name}/invitations", OPERATOR, people.invite_person,
        "Make a new invitation link, for example for a forgotten password. Earlier links end.", body=NoParams,
        status=201, response=people.Invited, errors=(NotFound,)),
    Row("POST", "/api/teams", OPERATOR, people.add_team, "Add a team with its first admin.",
        body=people.AddTeam, status=201, response=people.TeamAdded, errors=(AlreadyExists, NotFound)),
    Row("GET", "/api/teams", OPERATOR, people.list_teams, "List the teams of this host, by name.",
        query=people.ListPeople, response=people.TeamPage),
    Row("DELETE", "/api/teams/{name}", OPERATOR, people.delete_team,
        "Delete a team with all that it owns. The name is not given again.", status=204, errors=(NotFound,)),
    Row("POST", "/api/tokens", MEMBER_IN_PERSON, tokens.create_token,
        "Create a token of yours in the account, with at most your role. Its secret is returned once.",
        body=tokens.CreateToken, status=201, response=tokens.TokenView),
    Row("GET", "/api/tokens", MEMBER_IN_PERSON, tokens.list_tokens,
        "List your tokens in the account, for an admin all of its tokens.", response=tokens.TokenList),
    Row("DELETE", "/api/tokens/{token_id}", MEMBER_IN_PERSON, tokens.revoke_token,
        "Revoke a token of yours, as an admin any of the account. Its connections are closed.",
        status=204, errors=(NotFound,)),
    Row("GET", "/api/audit", ADMIN, audit.list_audit,
        "List the audit records of the account, newest first; for an operator also those of the host.",
        query=audit.ListAudit, response=audit.AuditPage),
    Row("GET", "/openapi.json", VIEWER, openapi_json, "Get this description.", response="application/json"),
)  # fmt: skip

# Served by every process, also by a worker.
OPS: tuple[Row, ...] = (
    Row("GET", "/healthz", PUBLIC, ops.healthz, "Check that the process is alive."),
    Row("GET", "/readyz", PUBLIC, ops.readyz, "Check that the process can store data now.",
        errors=(Unavailable,)),
    Row("GET", METRICS, OPERATOR, ops.metrics, "Get Prometheus metrics."),
)  # fmt: skip

# For people: not in the OpenAPI description.
PAGES: tuple[Row, ...] = (
    Row("GET", "/api/docs", VIEWER, pages.api_page, "The API page.", response="text/html"),
    Row("GET", "/", PUBLIC, pages.home, "The home page, or the sign-in page.", response="text/html"),
    Row("POST", "/sign-in", PUBLIC, pages.sign_in, "Sign in with a token. Sets a cookie.",
        response="text/html"),
    Row("GET", "/invitation", PUBLIC, invitation_page.show_invitation,
        "The page of an invitation. It changes nothing.", response="text/html"),
    Row("POST", "/invitation", PUBLIC, invitation_page.accept_invitation,
        "Accept an invitation: set a password and sign in.", response="text/html"),
    Row("GET", "/sign-in/openid", PUBLIC, openid.start,
        "Begin to sign in at the OpenID provider. `?next=` leads back to a page.", response="text/html"),
    Row("GET", CALLBACK_PATH, PUBLIC, openid.finish,
        "The callback of the OpenID provider. Sets a cookie.", response="text/html"),
    Row("POST", "/invitation/openid", PUBLIC, openid.start_invited,
        "Accept an invitation by signing in at the OpenID provider.", response="text/html"),
    Row("POST", "/sign-out", PUBLIC, pages.sign_out, "Sign out: revoke the cookie and close its connections.",
        response="text/html"),
    Row("GET", public_path("{provider}"), PUBLIC, oauth.finish_flow,
        "The callback of an OAuth provider: whether it is connected now.", response="text/html"),
    Row("GET", LOOPBACK_PATH, PUBLIC, oauth.finish_flow,
        "The same on this machine, in the profile dev-local.", response="text/html"),
    Row("GET", "/canvas/{agent_id}/{canvas_id}", PUBLIC, canvas_page.canvas_page,
        "The page of a canvas, or the sign-in page.", response="text/html"),
    Row("GET", "/canvas-view/{token}/{file:path}", PUBLIC, canvas_page.view_file,
        "A file of a canvas's page, by the token of its view.", response="*/*"),
    Row("GET", "/ui/{file}", PUBLIC, pages.ui_file, "A script, style or picture of our own pages.",
        response="text/css"),
)  # fmt: skip

ROUTES: tuple[Row, ...] = (*API, *OPS, *PAGES)

SOCKETS: tuple[SocketRow, ...] = (
    # The chat of a session: the server sends events, the client messages and cancels, which need more rights.
    SocketRow("/ws/chat/{thread_id}", VIEWER, chat.chat),
)
