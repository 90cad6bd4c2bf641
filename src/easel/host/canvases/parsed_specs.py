"""A cache of parsed specs: reading a spec is slow compared with starting an action.

Used on the event loop only. A decision under a lock gets a spec that was parsed before, and checks that it is
still the spec of the canvas.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from easel.core.canvas.canvas import Canvas
from easel.core.canvas.spec import UNLIMITED, CanvasSpec, parse_spec
from easel.core.stream.marker import restore_markers
from easel.ids import AccountId, CanvasId

MAX_CACHED_SPECS = 256


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    spec: CanvasSpec
    created_at: datetime  # of the canvas: a later one of the same id has other specs
    spec_revision: int

    def is_of(self, canvas: Canvas) -> bool:
        """Return whether the canvas still has this spec."""
        return (self.created_at, self.spec_revision) == (canvas.created_at, canvas.spec_revision)


class ParsedSpecs:
    def __init__(self) -> None:
        self._specs: OrderedDict[tuple[AccountId, CanvasId], ParsedSpec] = OrderedDict()

    def find(self, account_id: AccountId, canvas_id: CanvasId) -> ParsedSpec | None:
        """Return the spec of the canvas that was parsed last, if it is cached. It may be outdated."""
        return self._specs.get((account_id, canvas_id))

    def parse(self, canvas: Canvas) -> ParsedSpec:
        """Return the parsed spec of the canvas, from the cache if it was parsed before."""
        key = (canvas.account_id, canvas.canvas_id)
        parsed = self._specs.get(key)
        if parsed is None or not parsed.is_of(canvas):
            spec = parse_spec(_restore(canvas.spec), UNLIMITED)
            parsed = self._specs[key] = ParsedSpec(spec, canvas.created_at, canvas.spec_revision)
            while len(self._specs) > MAX_CACHED_SPECS:
                self._specs.popitem(last=False)
        return parsed


def _restore(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored spec as its author wrote it, except its state, which may have offloaded values."""
    declared = {name: part for name, part in stored.items() if name != "state"}
    return {**stored, **restore_markers(declared, {})}
