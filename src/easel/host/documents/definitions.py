"""The definitions of the seven tools with which an agent reads and edits a document. CT-20

Owns names, descriptions and arguments, which are the same for every model provider and every store. CT-01,
CT-38
"""

from collections.abc import Mapping
from typing import Any

from easel.core.tool.definition import ToolDefinition, object_schema
from easel.host.documents.answers import ToolRules

DEFAULTS = ToolRules()
MAX_LEASE_ID_LENGTH = 300
MAX_QUERY_LENGTH = 1_000
MAX_SECTION_LENGTH = 500
MAX_LINE_NUMBER = 100_000_000

_LEASE_ID: Mapping[str, Any] = {
    "type": "string",
    "maxLength": MAX_LEASE_ID_LENGTH,
    "description": "`lease_id` of canvas_check_out.",
}
_CANVAS_ID: Mapping[str, Any] = {
    "type": "string",
    "maxLength": 128,
    "description": "The document's canvas. Default: the newest document of this session.",
}
_SECTION: Mapping[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_SECTION_LENGTH,
    "description": "A heading, such as `## Plan`: only this section.",
}
_ITEM: Mapping[str, Any] = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_LINE_NUMBER,
    "description": "Only this list item of the section, counted from 1.",
}
_REVISION_ID: Mapping[str, Any] = {
    "type": "string",
    "maxLength": 100,
    "description": "Fail unless the document is at this revision. Needed to insert with `@@ -N,0`.",
}


def _line(description: str) -> Mapping[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": MAX_LINE_NUMBER, "description": description}


def definitions(rules: ToolRules = DEFAULTS) -> Mapping[str, ToolDefinition]:
    """Return the definitions by name. Without leases, reads and patches take a `canvas_id` instead. CT-60"""

    def schema(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
        if rules.needs_lease:
            return object_schema({"lease_id": _LEASE_ID, **properties}, "lease_id", *required)
        return object_schema({"lease_id": _LEASE_ID, "canvas_id": _CANVAS_ID, **properties}, *required)

    lease = object_schema({"lease_id": _LEASE_ID}, "lease_id")
    tools = (
        ToolDefinition(
            "canvas_check_out",
            "Take the exclusive lease of a document, the Markdown text of a canvas. All other canvas_ tools "
            "need its `lease_id`. The lease ends 15 seconds after your last activity, and at once when the "
            "user acts.",
            {"type": "object", "properties": {"canvas_id": _CANVAS_ID}, "additionalProperties": False},
        ),
        ToolDefinition(
            "canvas_renew_lease",
            "Renew the lease for 15 seconds. Every canvas_ call renews it too.",
            lease,
            idempotent=True,
        ),
        ToolDefinition(
            "canvas_check_in",
            "Release the lease early. Call it when your edits are complete.",
            lease,
            idempotent=True,
        ),
        ToolDefinition(
            "canvas_grep",
            "Find lines of the document. Returns matching lines with line numbers and their section, and "
            "`revision_id`. Use it first to locate what you want to edit.",
            schema(
                {
                    "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH},
                    "regex": {
                        "type": "boolean",
                        "default": False,
                        "description": "Whether `query` is a regular expression (RE2) instead of text.",
                    },
                    "section": _SECTION,
                },
                "query",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "canvas_read_lines",
            "Read numbered lines of the document: a range of lines, a section, or one list item of a "
            "section. Line numbers are valid for the returned `revision_id` only. The number and the tab "
            "before each line are not part of the text.",
            schema(
                {
                    "start_line": _line("First line, from 1."),
                    "end_line": _line("Last line, inclusive."),
                    "section": _SECTION,
                    "item": _ITEM,
                },
            ),
            read_only=True,
        ),
        ToolDefinition(
            "canvas_read_all",
            "Fallback: read the whole document with numbered lines, of at most "
            f"{rules.max_answer_bytes} bytes with the numbers. Prefer canvas_grep and canvas_read_lines.",
            schema({}),
            read_only=True,
        ),
        ToolDefinition(
            "canvas_apply_patch",
            "Edit the document by a unified diff. Each hunk is applied exactly at the old start line of its "
            "`@@ -line,count +line,count @@` header: its context and `-` lines must equal the text there, "
            "and must have been read before at this revision. All hunks are applied, or none. Line numbers "
            "change after an edit: read again.",
            schema(
                {
                    "patch": {"type": "string", "description": "Hunks of a unified diff."},
                    "base_revision_id": _REVISION_ID,
                },
                "patch",
            ),
        ),
    )
    return {tool.name: tool for tool in tools}
