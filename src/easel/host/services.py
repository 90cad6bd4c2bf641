"""The services that edges call, in one value."""

from dataclasses import dataclass

from easel.host.actions.invocations import ToolInvocations
from easel.host.actions.refresh import RefreshScheduler
from easel.host.actions.service import ActionService
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.auth.cookies import Cookies
from easel.host.auth.credentials import Credentials
from easel.host.auth.revocation import Revocation
from easel.host.auth.tokens import Tokens
from easel.host.boards.service import Boards
from easel.host.canvases.assets import CanvasAssets
from easel.host.canvases.library import CanvasLibrary
from easel.host.canvases.pages import CanvasPages
from easel.host.canvases.versions import CanvasVersions
from easel.host.canvases.views import CanvasViews
from easel.host.documents.service import Documents
from easel.host.models.choice import ChosenModels
from easel.host.models.settings import UserSettings
from easel.host.nodes.registry import NodeRegistry
from easel.host.oauth.connections import Connections
from easel.host.openid.sign_in import OpenIdSignIn
from easel.host.order import AccountOrder
from easel.host.people.departures import Departures
from easel.host.people.invitations import Invitations
from easel.host.people.passwords import Passwords
from easel.host.people.people import People
from easel.host.people.teams import Teams
from easel.host.readiness import Readiness
from easel.host.runs.queue import RunQueue
from easel.host.secrets import Secrets
from easel.host.sessions import Sessions
from easel.host.streams import Tails
from easel.host.tools.registry import ToolRegistry
from easel.host.usage import AccountUsage


@dataclass(frozen=True, slots=True)
class Services:
    credentials: Credentials
    cookies: Cookies
    revocation: Revocation
    people: People
    teams: Teams
    invitations: Invitations
    passwords: Passwords
    departures: Departures
    tokens: Tokens
    audit: Audit
    queue: RunQueue
    sessions: Sessions
    canvases: CanvasLibrary
    versions: CanvasVersions
    actions: ActionService
    refresh: RefreshScheduler
    assets: CanvasAssets
    views: CanvasViews
    pages: CanvasPages
    documents: Documents
    tails: Tails  # streams of the logs of runs
    threads: Tails  # streams of the threads of sessions
    canvas_tails: Tails
    account_tails: Tails
    order: AccountOrder  # of the events of an account, for clients that follow it
    boards: Boards
    artifacts: Artifacts
    readiness: Readiness
    tools: ToolRegistry
    invocations: ToolInvocations
    nodes: NodeRegistry
    settings: UserSettings
    secrets: Secrets
    connections: Connections | None  # to providers; None: this host describes none
    openid: OpenIdSignIn | None  # None: this host describes no OpenID provider
    models: ChosenModels
    usage: AccountUsage
