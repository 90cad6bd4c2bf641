"""Runs and tools over HTTP."""

from collections.abc import Sequence

from starlette.responses import Response

from easel.core.run.run import Run
from easel.core.run.status import Status
from easel.edges.http.calls import Call, idempotency_key, json_response
from easel.edges.http.wire import (
    ListRuns,
    ListTools,
    RunPage,
    RunStarted,
    StartRun,
    ToolList,
    listed_run_view,
    run_view,
    tool_view,
)
from easel.edges.paging import read_list_page, read_page
from easel.errors import BadInput


async def start_run(call: Call) -> Response:
    params: StartRun = call.params
    key = idempotency_key(call.request, params.idempotency_key)
    run = await call.host.queue.start(call.principal, params.session_id, params.message, key)
    return json_response(RunStarted(run.run_id, "queued"), 202)  # a repeated key gets the same response


async def get_run(call: Call) -> Response:
    run = await call.host.queue.get(call.principal, call.path["run_id"])
    return json_response(run_view(run, await call.host.queue.read_usage(run)))


async def list_runs(call: Call) -> Response:
    params: ListRuns = call.params
    statuses = _statuses(params.statuses)

    async def read(before: int | None, count: int) -> Sequence[Run]:
        return await call.host.queue.list_runs(call.principal, params.session_id, statuses, before, count)

    runs, more = await read_page(
        read,
        to_view=listed_run_view,
        position=lambda run: run.queue_no,
        start=params.before,
        limit=params.limit,
        weight=lambda run: len(run.input_text) + 1_000,
    )
    return json_response(RunPage(runs, more))


def _statuses(text: str) -> list[Status]:
    try:
        return [Status(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError:
        known = ", ".join(status.value for status in Status)
        raise BadInput(problem=f"statuses must be a comma-separated list of {known}.") from None


async def cancel_run(call: Call) -> Response:
    return json_response(run_view(await call.host.queue.cancel(call.principal, call.path["run_id"])), 202)


async def list_tools(call: Call) -> Response:
    params: ListTools = call.params
    definitions = await call.host.tools.definitions(call.principal.account_id)
    tools, more = await read_list_page(
        definitions.values(),
        to_view=tool_view,
        position=lambda tool: tool.name,
        start=params.after,
        limit=params.limit,
    )
    return json_response(ToolList(tools, more))
