"""A canvas as it is stored: what it is called, its spec and state, and where its log stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from easel.errors import BadInput
from easel.ids import CanvasId, UserId, is_name

LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCanvas:
    """What is asked for, checked and light."""

    user_id: UserId
    canvas_id: CanvasId
    agent_id: str
    title: str
    spec: Mapping[str, Any]
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    user_id: UserId
    canvas_id: CanvasId
    agent_id: str
    title: str
    spec: Mapping[str, Any]
    state: Mapping[str, Any]
    revision: int
    last_seq: int
    created_at: datetime
    updated_at: datetime


def checked_canvas_id(value: str) -> CanvasId:
    if not is_name(value) or "__" in value:
        raise BadInput(problem="canvasId is 1 to 128 characters: letters, digits and . _ : - (a letter or digit first), without __.")
    return CanvasId(value)


def checked_agent_id(value: str) -> str:
    if not is_name(value) or "__" in value:
        raise BadInput(problem="agentId is 1 to 128 characters: letters, digits and . _ : - (a letter or digit first), without __.")
    return value


def checked_title(value: str | None, canvas_id: CanvasId) -> str:
    """One line; a canvas without a title is called by its id."""
    title = " ".join((value or "").split()) or canvas_id
    if len(title) > LONGEST_TITLE or not title.isprintable():
        raise BadInput(problem=f"title is at most {LONGEST_TITLE} printable characters.")
    return title
