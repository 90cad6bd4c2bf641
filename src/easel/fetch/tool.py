"""The tool `local__Fetch`: its definition, its arguments and its result. RS-74"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from easel.core.action.parsing import parse_json
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import X_READ_ONLY, X_SHELL, ToolDefinition
from easel.core.web.hosts import FETCH, OWN_PAGE, Networks, parse_url
from easel.errors import BadInput
from easel.fetch.exchange import (
    MAX_REDIRECTS,
    MAX_SECONDS,
    CheckedNetwork,
    Exchange,
    Request,
    Resolve,
    resolve_name,
)

# Easel sets these: they decide where a request goes and where it ends.
_RESERVED = "(?i)^(accept-encoding|connection|content-length|expect|host|te|transfer-encoding|upgrade)$"
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    X_SHELL: False,
    "properties": {
        "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], X_READ_ONLY: ["GET", "HEAD"]},
        "url": {"type": "string", "description": "Such as https://api.example.com/items?page=2."},
        "headers": {
            "type": "object",
            "maxProperties": 50,
            "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,100}$", "not": {"pattern": _RESERVED}},
            "additionalProperties": {"type": "string", "pattern": "^[\\t -~]*$"},
        },
        "json": {"description": "The body as a JSON value."},
        "body": {"type": "string", "description": "The body as text, instead of `json`."},
        "bearer": {"type": "string", "pattern": "^[!-~]+$", "description": "A token for `Authorization`."},
    },
    "required": ["method", "url"],
    "not": {"required": ["json", "body"]},
    "additionalProperties": False,
}
DESCRIPTION = (
    "Sends an HTTP request to a host that `toolPolicy.hosts` of the canvas or, for agents, the server names. "
    "Returns `status`, `headers`, `body`, `json` if the answer is JSON, and `truncated`. Follows "
    f"{MAX_REDIRECTS} redirects, and takes at most {MAX_SECONDS:g} s. `{OWN_PAGE}` is this server's own page."
)


class FetchTool:
    def __init__(
        self,
        agent_hosts: Collection[str],
        private: Networks,
        *,
        max_body_bytes: int,
        resolve: Resolve = resolve_name,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        is_for_agents = bool(agent_hosts)
        self.definition = ToolDefinition(
            FETCH, DESCRIPTION, SCHEMA, destructive=True, is_for_agents=is_for_agents
        )
        self._agent_hosts = agent_hosts
        self._network = CheckedNetwork(private, resolve)
        self._max_body_bytes = max_body_bytes
        self._tls = tls

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        if args["url"] == OWN_PAGE:
            return _answer_own_page(args)
        request = _read_request(args)
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        of_canvas = context.hosts is not None
        answer = await Exchange(
            hosts=self._agent_hosts if context.hosts is None else context.hosts,
            listed_by="toolPolicy.hosts of the canvas" if of_canvas else "EASEL_FETCH_HOSTS of this server",
            network=self._network,
            tls=self._tls,
            max_bytes=self._max_body_bytes,
        ).send(request)
        body = answer.body.decode(errors="replace")
        result = {"status": answer.status, "headers": answer.headers, "body": body}
        if _JSON.fullmatch(answer.headers.get("content-type", "")) and not answer.is_truncated:
            with contextlib.suppress(BadInput):  # then there is the body
                result["json"] = parse_json(body, "body")
        return {**result, "truncated": answer.is_truncated}


def _answer_own_page(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the page /healthz says: the process that runs this is alive."""
    if args != {"method": "GET", "url": OWN_PAGE}:
        raise BadInput(problem=f"{FETCH}: {OWN_PAGE} takes the method GET and nothing else.")
    headers = {"content-type": "text/plain; charset=utf-8"}
    return {"status": 200, "headers": headers, "body": "ok\n", "truncated": False}


def _read_request(args: Mapping[str, Any]) -> Request:
    headers, content = {"accept": "*/*", "accept-encoding": "gzip", "user-agent": "easel"}, None
    if "json" in args:
        content, headers["content-type"] = msgspec.json.encode(args["json"]), "application/json"
    elif "body" in args:
        content, headers["content-type"] = args["body"].encode(errors="replace"), "text/plain; charset=utf-8"
    if "bearer" in args:
        headers["authorization"] = f"Bearer {args['bearer']}"
    headers |= {name.lower(): value for name, value in args.get("headers", {}).items()}
    return Request(method=args["method"], url=parse_url(args["url"]), headers=headers, content=content)
