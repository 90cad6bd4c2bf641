"""The limits of one tool loop. Each raises an error that says what ended the run. CT-44, RS-52"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from easel.core.run.conversation import Step, ToolResult, total_usage
from easel.errors import PatchRejected, RejectionLimit, StepLimit, TokenLimit

PATCH_TOOL = "canvas_apply_patch"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    max_steps: int = 24
    max_rejected_patches: int = 3  # in a row
    max_calls: int = 64  # of one answer; the others are refused
    max_tokens: int = 0  # of all model calls of a run; 0: no limit


def check_limits(steps: Sequence[Step], limits: LoopLimits) -> None:
    """Raise if the run may not call the model again."""
    if len(steps) >= limits.max_steps:
        raise StepLimit(limit=limits.max_steps)
    usage = total_usage(steps)
    if limits.max_tokens and usage is not None and usage.total >= limits.max_tokens:
        raise TokenLimit(used=usage.total, limit=limits.max_tokens)


def check_rejections(steps: Sequence[Step], limits: LoopLimits) -> None:
    """Raise if the newest patches of the run were all rejected, and there were too many of them."""
    rejected_count = 0
    for step in steps:
        for result in step.results:
            if result.tool == PATCH_TOOL:
                rejected_count = rejected_count + 1 if _is_rejected(result) else 0
    if rejected_count >= limits.max_rejected_patches:
        raise RejectionLimit(limit=limits.max_rejected_patches)


def _is_rejected(result: ToolResult) -> bool:
    value: Any = result.value
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return members.get("ok") is False and PatchRejected.code in (members.get("code"), members.get("error"))
