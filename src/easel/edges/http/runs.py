"""Runs and tools over HTTP."""

from functools import partial

from easel.core.run.status import Status
from easel.edges.http.calls import Call, idempotency_key
from easel.edges.http.wire import (
    ListRuns,
    ListTools,
    RunPage,
    RunStarted,
    RunView,
    StartRun,
    ToolList,
    listed_run_view,
    run_view,
    tool_view,
)
from easel.edges.paging import read_list_page, read_page
from easel.errors import BadInput


async def start_run(call: Call) -> RunStarted:
    params: StartRun = call.params
    key = idempotency_key(call.request, params.idempotency_key)
    run = await call.host.queue.start(call.principal, params.session_id, params.message, key)
    return RunStarted(run.run_id, "queued")  # a repeated key gets the same response


async def get_run(call: Call) -> RunView:
    run = await call.host.queue.get(call.principal, call.path["run_id"])
    return run_view(run, await call.host.queue.read_usage(run))


async def list_runs(call: Call) -> RunPage:
    params: ListRuns = call.params
    statuses = _statuses(params.statuses)
    read = partial(call.host.queue.list_runs, call.principal, params.session_id, statuses)
    page = await read_page(
        read,
        listed_run_view,
        lambda run: run.queue_no,
        start=params.before,
        limit=params.limit,
        weight=lambda run: len(run.input_text) + 1_000,
    )
    return RunPage(*page)


def _statuses(text: str) -> list[Status]:
    try:
        return [Status(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError:
        known = ", ".join(status.value for status in Status)
        raise BadInput(problem=f"statuses must be a comma-separated list of {known}.") from None


async def cancel_run(call: Call) -> RunView:
    return run_view(await call.host.queue.cancel(call.principal, call.path["run_id"]))


async def list_tools(call: Call) -> ToolList:
    params: ListTools = call.params
    definitions = await call.host.tools.definitions(call.principal.account_id)
    page = await read_list_page(
        definitions.values(), tool_view, lambda tool: tool.name, start=params.after, limit=params.limit
    )
    return ToolList(*page)
