"""The run API of DESIGN §6: bytes to calls of the run stories and back."""

from starlette.responses import Response

from easel.core.run.status import Status
from easel.edges.http.calls import Call, json_answer
from easel.edges.http.wire import ListRuns, RunPage, RunStarted, StartRun, ToolList, run_view, tool_view
from easel.errors import BadInput


async def start_run(call: Call) -> Response:
    asked: StartRun = call.asked
    header = call.request.headers.get("idempotency-key")
    if header is not None and asked.idempotency_key not in (None, header):
        raise BadInput(
            problem="The Idempotency-Key header and idempotency_key in the body differ; send one of them."
        )
    key = asked.idempotency_key if header is None else header
    run = await call.host.queue.start(call.principal, asked.session_id, asked.message, key)
    return json_answer(
        RunStarted(run.run_id, "queued"), 202
    )  # the answer to a repeated key is the first answer


async def get_run(call: Call) -> Response:
    return json_answer(run_view(await call.host.queue.get(call.principal, call.path["run_id"])))


async def list_runs(call: Call) -> Response:
    asked: ListRuns = call.asked
    runs = await call.host.queue.list_runs(
        call.principal, asked.session_id, _statuses(asked.statuses), asked.before, asked.limit
    )
    more = runs[-1].queue_no if len(runs) == asked.limit else None
    return json_answer(RunPage([run_view(run) for run in runs], more))


def _statuses(text: str) -> list[Status]:
    try:
        return [Status(word.strip()) for word in text.split(",") if word.strip()]
    except ValueError:
        known = ", ".join(status.value for status in Status)
        raise BadInput(problem=f"statuses is a comma separated list of {known}.") from None


async def cancel_run(call: Call) -> Response:
    return json_answer(run_view(await call.host.queue.cancel(call.principal, call.path["run_id"])), 202)


async def list_tools(call: Call) -> Response:
    return json_answer(
        ToolList(
            [tool_view(tool) for tool in (await call.host.tools.definitions(call.principal.user_id)).values()]
        )
    )
