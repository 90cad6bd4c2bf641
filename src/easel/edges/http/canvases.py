"""Snapshots of canvases over HTTP."""

from msgspec import Struct

from easel.edges.http.artifacts import read_upload
from easel.edges.http.calls import Call


class SnapshotView(Struct):
    artifact_id: str
    uri: str
    seq: int


async def add_snapshot(call: Call) -> SnapshotView:
    declared_type, source = await read_upload(call)
    artifact, seq = await call.host.pages.add_snapshot(
        call.principal, call.path["canvas_id"], source, declared_type
    )
    return SnapshotView(artifact.artifact_id, artifact.uri, seq)
