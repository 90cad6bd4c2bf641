"""Snapshots of canvases over HTTP."""

from msgspec import Struct
from starlette.responses import Response

from easel.edges.http.artifacts import read_upload
from easel.edges.http.calls import Call, json_response


class SnapshotView(Struct):
    artifact_id: str
    uri: str
    seq: int


async def add_snapshot(call: Call) -> Response:
    declared_type, source = await read_upload(call)
    artifact, seq = await call.host.pages.add_snapshot(
        call.principal, call.path["canvas_id"], source, declared_type
    )
    return json_response(SnapshotView(artifact.artifact_id, artifact.uri, seq), 201)
