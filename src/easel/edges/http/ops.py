"""Endpoints for operators: liveness, readiness and metrics."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from easel.edges.http.calls import Call


async def healthz(_: Call) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(call: Call) -> Response:
    await call.host.readiness.check()
    return PlainTextResponse("ok\n")


async def metrics(call: Call) -> Response:
    await call.host.queue.measure()
    return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})
