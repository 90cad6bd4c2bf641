"""The page of a canvas that has none of its own: its actions as buttons, with a field for each value they take, its state as a form and tables.

Made of the same hooks as any other page (`data-gsv-action`, `data-gsv-model`) and held by the same policy. What follows from the spec stands in
the HTML; what follows from the state is drawn by `gsv_generated.js`, and follows its changes.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from easel.core.canvas.canvas import Canvas
from easel.core.values.template import INPUT, Template, leaves, parse_templates

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
  {says}
  <section id="actions" aria-label="Actions">{actions}</section>
  <main id="state" aria-label="State"></main>
  <p id="nothing" hidden>This canvas has neither state nor actions yet. Give it a spec with <code>canvas.patch</code>, or a page as <code>assets/index.html</code>.</p>
  <script type="application/json" id="places">{places}</script>
  <script src="../generated.js" crossorigin="anonymous"></script>
</body>
</html>
"""


def generated(canvas: Canvas) -> bytes:
    spec = canvas.spec
    actions = _members(spec.get("actions"))
    said = spec.get("description")
    return _PAGE.format(
        title=html.escape(canvas.title),
        says=f"<p>{html.escape(said)}</p>" if isinstance(said, str) and said else "",
        actions="".join(_button(action_id, _members(action)) for action_id, action in actions.items()),
        places=_json(_places(spec, actions)),
    ).encode()


def _button(action_id: str, action: Mapping[str, Any]) -> str:
    title = action.get("title") or words(action_id)
    does = action.get("description") or {
        "tool.call": f"Runs {action.get('tool')}",
        "session.send": "Asks the agent",
    }.get(str(action.get("kind")), "Changes the state")
    name = html.escape(action_id)
    says = f'title="{html.escape(str(does))}">{html.escape(str(title))}</button>'
    beside = (
        f'<span class="outcome" data-outcome="{name}" role="status"></span>'
        f'<button type="button" class="stop" data-stop="{name}" hidden>Stop</button><pre class="value" data-said="{name}" hidden></pre>'
    )
    fields = "".join(map(_field, dict.fromkeys(_inputs(action))))
    if fields:  # the button is what is bound: what a form is asked for can be hidden by a field of that name
        return f'<form class="action asks">{fields}<button data-gsv-action="{name}" {says}{beside}</form>'
    return f'<div class="action"><button type="button" data-gsv-action="{name}" {says}{beside}</div>'


def _field(name: str) -> str:
    return f'<label>{html.escape(words(name))} <input name="{html.escape(name)}" dir="auto" autocomplete="off"></label>'


def _inputs(action: Mapping[str, Any]) -> Iterator[str]:
    """The names that an action takes with a press. What lies deeper, no field of a form can say."""
    for _, leaf in leaves(parse_templates([action.get("args"), action.get("message")], "")):
        if isinstance(leaf, Template):
            yield from (
                one.path[0] for one in leaf.placeholders if one.source == INPUT and len(one.path) == 1
            )


def _places(spec: Mapping[str, Any], actions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a person may write, where results come to stand, and what is a number even while it is empty: paths by their parts."""
    writable = spec.get("writable")
    saves = [action.get("saveAs") for action in map(_members, actions.values())]
    return {
        "writable": [[name] for name in _members(spec.get("state"))]
        if writable is None
        else [str(one).split(".") for one in writable],
        "results": [one.split(".") for one in saves if isinstance(one, str)],
        "saves": {
            action_id: save.split(".")
            for action_id, save in zip(actions, saves, strict=True)
            if isinstance(save, str)
        },
        "numbers": list(_numbers(_members(spec.get("state")), [])),
    }


def _numbers(value: Any, path: list[str]) -> Iterator[list[str]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path
    for name, one in _members(value).items():
        yield from _numbers(one, [*path, name])


def words(name: str) -> str:
    """`refreshLogs` as a person would say it."""
    said = " ".join(filter(None, _WORDS.split(name)))
    return said[:1].upper() + said[1:].lower() if said else name


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _json(value: Any) -> str:
    """Inside of HTML: nothing in it can end the element that it stands in."""
    return json.dumps(value).replace("<", "\\u003c")
