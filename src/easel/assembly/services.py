"""Build the services of one process, each once, and pass them down.

`SharedServices` are used by the API and the worker; `build_services` adds the services that only edges call.
Owns which settings each service gets. Does not know wire formats or database drivers.
"""

import contextlib
import platform
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from easel import __version__
from easel.assembly.models import base_urls, host_model, open_cipher, open_models
from easel.assembly.oauth import open_connections
from easel.assembly.openid import build_openid
from easel.assembly.people import build_people, check_isolation
from easel.assembly.resources import Resources
from easel.assembly.sandbox import describe_isolation, local_tools, session_folders
from easel.assembly.storage import derive_key, owner_credential, owner_token
from easel.core.action.policy import APPROVAL_MODES
from easel.core.canvas.spec import SpecLimits
from easel.core.tool.node import LOCAL, LocalNode, full_tool_name
from easel.host.actions.executor import ActionExecutor
from easel.host.actions.invocations import ToolInvocations
from easel.host.actions.live_output import LiveOutputs
from easel.host.actions.refresh import RefreshScheduler
from easel.host.actions.service import ActionService
from easel.host.actions.transitions import ActionLimits, ActionResources
from easel.host.auth.cookies import Cookies
from easel.host.auth.credentials import Credentials
from easel.host.auth.revocation import Revocation
from easel.host.auth.throttle import SignInThrottle
from easel.host.auth.tokens import Tokens
from easel.host.boards.service import Boards
from easel.host.boards.tools import board_tools
from easel.host.calls.incoming_calls import IncomingCalls
from easel.host.calls.remote_calls import RemoteCallLimits, RemoteCalls
from easel.host.canvases.agent_tools import canvas_tools
from easel.host.canvases.assets import AssetLimits, CanvasAssets
from easel.host.canvases.library import CanvasLibrary
from easel.host.canvases.pages import CanvasPages
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.canvases.versions import CanvasVersions
from easel.host.canvases.views import CanvasViews
from easel.host.documents.answers import ToolRules
from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.service import Documents
from easel.host.documents.tools import document_tools
from easel.host.documents.transactions import DocumentTransactions
from easel.host.models.choice import ChosenModels
from easel.host.models.settings import UserSettings
from easel.host.nodes.registry import NodeLimits, NodeRegistry
from easel.host.oauth.connections import Connections
from easel.host.order import AccountOrder
from easel.host.people.departures import Departures
from easel.host.people.hashes import PasswordHashes
from easel.host.people.passwords import Passwords
from easel.host.ports import LogSource, Tool
from easel.host.readiness import Readiness
from easel.host.runs.queue import RunQueue
from easel.host.secrets import Secrets
from easel.host.services import Services
from easel.host.sessions import Sessions
from easel.host.streams import ACCOUNTS, CANVASES, RUNS, THREADS, LogKind, StreamQuota, TailMemory, Tails
from easel.host.tools.native import native_tools
from easel.host.tools.registry import ToolRegistry
from easel.host.usage import AccountUsage
from easel.ids import new_worker_id
from easel.sandbox.modes import Choice
from easel.sandbox.session_dirs import SessionDirs
from easel.settings import Settings


@dataclass(frozen=True, slots=True)
class SharedServices:
    """The services that every process needs, an API as well as a worker."""

    resources: Resources
    transactions: CanvasTransactions
    assets: CanvasAssets
    views: CanvasViews
    library: CanvasLibrary
    boards: Boards
    documents: DocumentTransactions
    leases: LeaseKeeper
    outputs: LiveOutputs
    incoming_calls: IncomingCalls
    # One registry for API and worker, so that a call to a node that is connected here stays in the process.
    nodes: NodeRegistry
    folders: SessionDirs
    tools: ToolRegistry
    settings: UserSettings
    secrets: Secrets
    connections: Connections | None  # None: this host describes no provider
    models: ChosenModels


@contextlib.asynccontextmanager
async def open_shared_services(
    resources: Resources, sandbox: Choice, extra_tools: Sequence[Tool] = ()
) -> AsyncGenerator[SharedServices]:
    """Build the shared services; at the end, disconnect the nodes and end all calls."""
    settings, database = resources.settings, resources.database
    await check_isolation(settings, database)
    artifacts, notifier, audit = resources.artifacts, database.notifier, resources.audit
    transactions = CanvasTransactions(database.canvases, artifacts, resources.blobs, notifier, audit)
    outputs = LiveOutputs(transactions, audit, settings.claim_seconds)
    secrets = Secrets(database.secrets, open_cipher(settings, "secrets"), audit)
    call_limits = RemoteCallLimits(
        # Shorter than a claim, so that a call stops before its run or execution is adopted and restarted.
        caller_ttl_seconds=settings.claim_seconds * 2 / 3,
        poll_seconds=settings.poll_seconds,
        call_seconds=settings.tool_timeout_seconds,
        max_result_bytes=settings.max_result_bytes,
    )
    remote_calls = RemoteCalls(database.calls, artifacts, notifier, call_limits)
    incoming_calls = IncomingCalls(database.calls, artifacts, notifier, call_limits)
    nodes = NodeRegistry(
        database.nodes,
        database.tokens,
        notifier,
        audit,
        NodeLimits(ttl_seconds=settings.node_ttl_seconds, poll_seconds=settings.poll_seconds),
        remote=remote_calls,
        incoming=incoming_calls,
        outputs=outputs,
        secrets=secrets,
    )
    tools = ToolRegistry(
        [],
        audit=audit,
        timeout_seconds=settings.tool_timeout_seconds,
        max_result_bytes=settings.max_result_bytes,
        sources=[nodes],
        secrets=secrets,
    )
    assets = CanvasAssets(
        database.canvases, transactions, resources.blobs, AssetLimits(settings.max_asset_bytes)
    )
    views = CanvasViews(database.canvases, transactions)
    library = CanvasLibrary(
        database.canvases,
        transactions,
        assets,
        tools,
        notifier=notifier,
        audit=audit,
        limits=SpecLimits(state_bytes=settings.max_state_bytes),
        floor=APPROVAL_MODES[settings.approval_mode],
    )
    boards = Boards(database.boards, artifacts, notifier)
    documents = DocumentTransactions(database.documents, artifacts, notifier)
    leases = LeaseKeeper(documents, database.canvases, notifier)
    folders = session_folders(settings, sandbox.owner)
    user_settings = UserSettings(
        database.settings,
        open_cipher(settings),
        notifier,
        audit,
        host_model(settings),
        base_urls=base_urls(database.accounts.find_person, settings),
    )

    # The tool registry is filled last: the library checks specs against it, and some tools call the library.
    local = local_tools(settings, sandbox, folders, audit)
    tools.add([*native_tools(), *board_tools(boards), *local, *extra_tools])
    if sandbox.launcher is None:
        tools.missing = {full_tool_name(LOCAL, "Bash"): f"commands are {sandbox.description}"}
    tools.add(canvas_tools(library, views, database.runs, database.canvases))
    if settings.canvas_tools:
        rules = document_rules(settings)
        tools.add(document_tools(documents, leases, rules), are_offered=not rules.is_turned_off)
    nodes.local = LocalNode(
        version=__version__,
        platform=platform.system().lower(),
        tools=[tool.definition.name for tool in local],
        bash=sandbox.description,
        commands=describe_isolation(settings, sandbox),
    )
    try:
        async with (
            open_connections(resources) as connections,
            open_models(user_settings, connections) as models,
        ):
            yield SharedServices(
                resources=resources,
                transactions=transactions,
                assets=assets,
                views=views,
                library=library,
                boards=boards,
                documents=documents,
                leases=leases,
                outputs=outputs,
                incoming_calls=incoming_calls,
                nodes=nodes,
                folders=folders,
                tools=tools,
                settings=user_settings,
                secrets=secrets,
                connections=connections,
                models=models,
            )
    finally:
        await nodes.close()
        await incoming_calls.close()
        await remote_calls.close()


def build_services(shared: SharedServices, *, random: Callable[[], float] = random.random) -> Services:
    """Build the services that edges call, from the shared services. `random` spreads refresh jobs."""
    resources = shared.resources
    settings, database = resources.settings, resources.database
    artifacts, notifier, audit = resources.artifacts, database.notifier, resources.audit
    token = owner_token(settings)
    audit.add_secret(token)
    throttle = SignInThrottle(settings.sign_in_failures)
    credentials = Credentials(
        database.tokens, database.accounts, database.sign_ins, [owner_credential(token)], throttle
    )
    queue = RunQueue(
        database.runs,
        artifacts,
        notifier,
        audit,
        canvases=database.canvases,
        max_attempts=settings.max_attempts,
        max_message_bytes=settings.max_message_bytes,
        max_queued=settings.limits_of_account.queued_runs,
    )
    instance_id = new_worker_id()
    usage = AccountUsage(
        settings.limits_of_account, database.usage, instance_id, is_shared=settings.on_postgres
    )
    quota = StreamQuota(settings.max_streams, usage)
    tail_memory = TailMemory(settings.tail_bytes)

    def tails(kind: LogKind, source: LogSource) -> Tails:
        return Tails(
            kind,
            source,
            notifier,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            quota=quota,
            memory=tail_memory,
        )

    run_tails = tails(RUNS, database.runs)
    executor = ActionExecutor(
        shared.tools, queue, run_tails, artifacts, answer_seconds=settings.run_timeout_seconds
    )
    parts = ActionResources(
        executions=database.executions,
        changes=shared.transactions,
        artifacts=artifacts,
        tools=shared.tools,
        audit=audit,
        limits=action_limits(settings),
        instance_id=instance_id,
        approval_by=shared.settings.find_approval,
        usage=usage,
    )
    actions = ActionService(
        parts, executor, shared.outputs, notifier, single_process=not settings.on_postgres
    )
    refresh = RefreshScheduler(parts, actions, unwatched=settings.refresh_unwatched, random=random)
    pages = CanvasPages(
        shared.transactions,
        artifacts,
        audit,
        credentials,
        key=derive_key(resources.signing_key, token, "canvas view"),
        max_state_bytes=settings.max_state_bytes,
    )
    departures = Departures(database.departures, queue, actions.confirmations)
    hashes = PasswordHashes()
    administration = build_people(
        settings,
        database.people,
        audit,
        hashes=hashes,
        throttle=throttle,
        on_departure=departures.start_now,
    )
    return Services(
        credentials=credentials,
        cookies=Cookies(credentials, database.sign_ins, derive_key(resources.signing_key, token, "cookie")),
        revocation=Revocation(credentials, database.sign_ins, notifier),
        people=administration.people,
        teams=administration.teams,
        invitations=administration.invitations,
        passwords=Passwords(database.people, hashes, throttle, audit),
        departures=departures,
        tokens=Tokens(database.tokens, audit),
        audit=audit,
        artifacts=artifacts,
        boards=shared.boards,
        documents=Documents(shared.documents, audit, max_bytes=settings.max_document_bytes),
        queue=queue,
        sessions=Sessions(database.sessions, database.accounts, queue, notifier, audit),
        canvases=shared.library,
        versions=CanvasVersions(
            database.canvas_versions, shared.transactions, shared.assets, shared.library.drafts, audit
        ),
        actions=actions,
        refresh=refresh,
        assets=shared.assets,
        views=shared.views,
        pages=pages,
        tails=run_tails,
        threads=tails(THREADS, database.sessions),
        canvas_tails=tails(CANVASES, database.canvases),
        account_tails=tails(ACCOUNTS, database.accounts),
        order=AccountOrder(database.orders, notifier, poll_seconds=settings.poll_seconds),
        readiness=Readiness(database.runs),
        tools=shared.tools,
        invocations=ToolInvocations(
            shared.tools, audit, floor=parts.limits.floor, approval_by=shared.settings.find_approval
        ),
        nodes=shared.nodes,
        settings=shared.settings,
        secrets=shared.secrets,
        connections=shared.connections,
        openid=build_openid(resources, throttle, departures.start_now),
        models=shared.models,
        usage=usage,
    )


# -- limits: each service's part of the settings -------------------------------------------------------------


def document_rules(settings: Settings) -> ToolRules:
    """Return the settings of the document tools. A model must get every line that counts as read. RS-47"""
    return ToolRules(
        needs_lease=settings.canvas_leases,
        enforces_inspection=settings.canvas_inspection == "enforce",
        is_turned_off=settings.document_store == "git",
        max_document_bytes=settings.max_document_bytes,
        max_result_bytes=min(settings.max_result_bytes, settings.max_context_result_bytes),
    )


def action_limits(settings: Settings) -> ActionLimits:
    return ActionLimits(
        max_running=settings.max_actions,
        state_bytes=settings.max_state_bytes,
        claim_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        confirm_seconds=settings.confirm_seconds,
        approval_seconds=settings.approval_seconds,
        floor=APPROVAL_MODES[settings.approval_mode],
    )
