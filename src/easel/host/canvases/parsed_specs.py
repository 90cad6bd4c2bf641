"""A cache of parsed specs: reading a spec is slow compared with starting an action."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from easel.core.canvas.canvas import Canvas
from easel.core.canvas.spec import UNLIMITED, CanvasSpec, parse_spec
from easel.core.stream.marker import restore_markers

MAX_CACHED_SPECS = 256


class ParsedSpecs:
    def __init__(self) -> None:
        self._specs: OrderedDict[tuple[str, str, Any, int], CanvasSpec] = OrderedDict()

    def get(self, canvas: Canvas) -> CanvasSpec:
        """Return the parsed spec of the canvas, from the cache if this revision was parsed before."""
        key = (canvas.account_id, canvas.canvas_id, canvas.created_at, canvas.spec_revision)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = parse_spec(_restore(canvas.spec), UNLIMITED)
            while len(self._specs) > MAX_CACHED_SPECS:
                self._specs.popitem(last=False)
        return spec


def _restore(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored spec as its author wrote it, except its state, which may have offloaded values."""
    declared = {name: part for name, part in stored.items() if name != "state"}
    return {**stored, **restore_markers(declared, {})}
