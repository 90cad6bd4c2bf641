"""How deep a value from outside may be nested: enough for any honest use, shallow enough for every reader after us."""

from typing import Any, cast

DEEPEST = 100


def is_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Looked at level by level, so that no depth can exhaust the stack."""
    level: list[Any] = [value]
    for _ in range(deepest + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += cast("dict[Any, Any]", one).values()
            elif isinstance(one, (list, tuple)):
                inner += cast("list[Any]", one)
        if not inner:
            return False
        level = inner
    return True
