"""The generated page of a canvas without an index.html: a button per action, the state as fields and tables.

Owns the HTML that is generated from the spec; `web/sdk/generated/` draws the state and follows its changes.
The page uses the same attributes as any other page (`data-gsv-action`, `data-gsv-model`, `data-gsv-each`) and
has the same policy.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from easel.core.action.input_fields import InputType, find_inputs
from easel.core.canvas.actions import CallTool
from easel.core.canvas.canvas import Canvas
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import ToolDefinition

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[._:-]+")

_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
  <link rel="stylesheet" href="../generated.css">
</head>
<body>
  {description}
  <section id="actions" aria-label="Actions">{actions}</section>
  <main id="state" aria-label="State"></main>
  <p id="nothing" hidden>This canvas has neither state nor actions yet.
    Give it a spec with <code>canvas.patch</code>, or a page as <code>assets/index.html</code>.</p>
  <script type="application/json" id="paths">{paths}</script>
  <script src="../generated.js" crossorigin="anonymous"></script>
</body>
</html>
"""


def generated_page(canvas: Canvas, parsed: CanvasSpec, definitions: Mapping[str, ToolDefinition]) -> bytes:
    """Return the page. `definitions` are the tools that are known now; they give the types of the inputs."""
    spec = canvas.spec
    actions = _members(spec.get("actions"))
    description = spec.get("description")
    return _PAGE.format(
        title=html.escape(canvas.title),
        description=f"<p>{html.escape(description)}</p>"
        if isinstance(description, str) and description
        else "",
        actions="".join(
            _action(action_id, _members(action), _inputs(action_id, parsed, definitions))
            for action_id, action in actions.items()
        ),
        # Nothing in the JSON can end the surrounding script element.
        paths=json.dumps(_paths(spec, actions)).replace("<", "\\u003c"),
    ).encode()


def _action(action_id: str, action: Mapping[str, Any], inputs: Mapping[str, InputType]) -> str:
    title = action.get("title") or to_label(action_id)
    effect = action.get("description") or {
        "tool.call": f"Runs {action.get('tool')}",
        "session.send": "Sends a message to the agent",
    }.get(str(action.get("kind")), "Changes the state")
    name = html.escape(action_id)
    label = f'title="{html.escape(str(effect))}">{html.escape(str(title))}</button>'
    status = (
        f'<span class="outcome" data-outcome="{name}" role="status"></span>'
        f'<button type="button" class="stop" data-stop="{name}" hidden>Stop</button>'
        f'<pre class="value" data-output="{name}" hidden></pre>'
    )
    fields = "".join(_field(name, kind) for name, kind in inputs.items())
    if fields:
        # `data-gsv-action` is on the button and not on the form: a field's name could hide a form's property.
        return f'<form class="action asks">{fields}<button data-gsv-action="{name}" {label}{status}</form>'
    return f'<div class="action"><button type="button" data-gsv-action="{name}" {label}{status}</div>'


def _field(name: str, kind: InputType) -> str:
    """Return a field; `data-input-type` says what the action gets instead of text."""
    label, attributes = html.escape(to_label(name)), f'name="{html.escape(name)}"'
    if kind is not InputType.STRING:
        attributes += f' data-input-type="{kind}"'
    match kind:
        case InputType.BOOLEAN:
            options = '<option value="false">No</option><option value="true">Yes</option>'
            return f"<label>{label} <select {attributes}>{options}</select></label>"
        case InputType.NUMBER | InputType.INTEGER:
            step = "any" if kind is InputType.NUMBER else "1"
            return f'<label>{label} <input {attributes} type="number" step="{step}" required></label>'
        case InputType.STRING | InputType.JSON:
            return f'<label>{label} <input {attributes} dir="auto" autocomplete="off"></label>'


def _inputs(
    action_id: str, parsed: CanvasSpec, definitions: Mapping[str, ToolDefinition]
) -> Mapping[str, InputType]:
    action = parsed.actions.get(action_id)
    if action is None:
        return {}
    definition = definitions.get(action.tool) if isinstance(action, CallTool) else None
    return find_inputs(action, definition, parsed.state)


def _paths(spec: Mapping[str, Any], actions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the paths of writable values, of results and of numbers, each as a list of parts."""
    writable = spec.get("writable")
    saves = {
        action_id: save.split(".")
        for action_id, action in actions.items()
        if isinstance(save := _members(action).get("saveAs"), str)
    }
    return {
        "writable": [[name] for name in _members(spec.get("state"))]
        if writable is None
        else [str(path).split(".") for path in writable],
        "results": list(saves.values()),
        "saves": saves,
        "numbers": list(_numbers(_members(spec.get("state")), [])),
    }


def _numbers(value: Any, path: list[str]) -> Iterator[list[str]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path
    for name, member in _members(value).items():
        yield from _numbers(member, [*path, name])


def to_label(name: str) -> str:
    """Return `refreshLogs` as "Refresh logs"."""
    words = " ".join(filter(None, _WORDS.split(name)))
    return words[:1].upper() + words[1:].lower() if words else name


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
