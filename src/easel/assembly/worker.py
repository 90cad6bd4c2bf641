"""Build the worker of one process and collect its background work."""

from functools import partial

from easel.assembly.resources import account_budget
from easel.assembly.services import SharedServices
from easel.core.run.limits import LoopLimits
from easel.host.actions.retention import RecordRetention
from easel.host.artifacts.references import ReferenceRelease
from easel.host.audit.chain import AuditRetention
from easel.host.canvases.log_retention import CanvasLogRetention
from easel.host.deletions import DeletionPurge
from easel.host.order import EXPIRE_SECONDS, end_expired_follows
from easel.host.periodic import Periodic, Work
from easel.host.runs.context import ContextSource
from easel.host.runs.execution import RunExecution
from easel.host.runs.hidden_updates import HiddenUpdates
from easel.host.runs.images import ImageReader
from easel.host.runs.tool_loop import ToolLoop
from easel.host.runs.turns import TurnLoader
from easel.host.runs.worker import RunWorker, WorkerLimits
from easel.host.sweeps import shared_periodic
from easel.ids import new_worker_id

GIVE_SLOTS_SECONDS = 1.0


def sweeps(shared: SharedServices, retention_seconds: float) -> list[Periodic]:
    """Return the sweeps, each of which one worker does for all."""
    resources = shared.resources
    work: dict[str, Work] = {
        "artifacts.sweep": resources.artifacts.sweep,
        "assets.sweep": shared.assets.sweep,
    }
    if retention_seconds:  # else no log is ever shortened, and every reference is still needed
        references = ReferenceRelease(resources.database.references, resources.artifacts)
        work = {"references.release": references.once, **work}
    return [
        shared_periodic(resources.database.sweeps, name, resources.settings.sweep_seconds, sweep)
        for name, sweep in work.items()
    ]


def build_execution(shared: SharedServices) -> RunExecution:
    """Build what executes one run: the context of its model, the tool loop and hidden updates."""
    resources = shared.resources
    settings, database, artifacts = resources.settings, resources.database, resources.artifacts
    max_result_bytes = settings.max_context_result_bytes
    # In git mode the tools answer an error, so nothing of a document is reported either. CT-02, CT-37
    has_documents = settings.canvas_tools and settings.document_store != "git"
    documents = database.documents if has_documents else None
    images = ImageReader(artifacts)
    contexts = ContextSource(
        TurnLoader(database.runs, artifacts, images, max_result_bytes=max_result_bytes),
        images,
        documents,
        max_result_bytes=max_result_bytes,
    )
    loop = ToolLoop(
        shared.models,
        shared.tools,
        contexts,
        shared.leases,
        limits=LoopLimits(
            max_steps=settings.max_steps,
            max_rejected_patches=settings.max_rejected_patches,
            max_tokens=settings.run_token_budget,
        ),
        budget=account_budget(settings, database),
    )
    return RunExecution(
        database.runs,
        artifacts,
        loop,
        HiddenUpdates(documents),
        audit=resources.audit,
        timeout_seconds=settings.run_timeout_seconds,
    )


def build_worker(shared: SharedServices) -> RunWorker:
    """Build the worker, which executes runs and deletes data after its retention time."""
    resources = shared.resources
    settings, database = resources.settings, resources.database
    retention_seconds = settings.retention_days * 86_400
    return RunWorker(
        new_worker_id(),
        database.runs,
        resources.artifacts,
        database.notifier,
        build_execution(shared),
        limits=WorkerLimits(
            slots=settings.worker_runs,
            claim_seconds=settings.claim_seconds,
            poll_seconds=settings.poll_seconds,
            drain_seconds=settings.drain_seconds,
            # On SQLite there is no other worker.
            prefer_seconds=settings.prefer_worker_seconds if settings.on_postgres else 0,
            retention_seconds=retention_seconds,
        ),
        audit=resources.audit,
        background_tasks=[
            DeletionPurge(database.deletions, resources.blobs).periodic(),
            RecordRetention(database.executions, retention_seconds).periodic(),
            CanvasLogRetention(database.canvases, retention_seconds).periodic(),
            AuditRetention(
                database.audit, resources.audit, days=settings.audit_days, key=resources.signing_key
            ).periodic(),
            *sweeps(shared, retention_seconds),
            shared_periodic(
                database.sweeps,
                "orders.expire",
                EXPIRE_SECONDS,
                partial(end_expired_follows, database.orders, database.notifier),
            ),
            Periodic("runs.give_slots", GIVE_SLOTS_SECONDS, database.runs.give_slots),
            *shared.leases.periodics(),
            shared.nodes.periodic(),
            shared.incoming_calls.periodic(),
            Periodic("sandbox.cleanup", shared.folders.cleanup_seconds, shared.folders.clean_once),
        ],
    )
