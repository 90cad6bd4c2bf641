"""The HTML of a canvas's page as it is served: with the SDK in front, and the hashes of its inline scripts.

Owns the search for scripts, in time linear in the length of the page. The stored asset is not changed
(CV-06). An inline script of the stored page is allowed by its hash; a script that is injected later, such as
by a value of the state, is not allowed.
"""

import base64
import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_INLINE = 50  # inline scripts of a page; each hash makes the header longer, and proxies limit headers

_SPACE = " \t\n\f"
_TAG = re.compile(r"<script(?=[\s/>])|<!--", re.IGNORECASE)
_END = re.compile(r"</script(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_DATA = ("json", "template", "plain")  # words in the `type` of a script element that contains data


@dataclass(frozen=True, slots=True)
class PreparedPage:
    html: str
    hashes: list[str]


@dataclass(frozen=True, slots=True)
class Script:
    """A script element. `name_end` is the position after `<script`; `text` is None if it has a `src`."""

    name_end: int
    attributes: dict[str, str]
    text: str | None


def prepare_page(content: bytes, sdk: str) -> PreparedPage:
    text = decode_html(content)
    scripts = list(find_scripts(text))
    pieces, done = list[str](), 0
    for script in scripts:
        if script.text is None and "crossorigin" not in script.attributes:
            # Without this attribute a browser hides the errors of the script behind "Script error.".
            pieces += [text[done : script.name_end], " crossorigin=anonymous"]
            done = script.name_end
    page = "".join([*pieces, text[done:]])
    front = doctype_end(page)
    inline = [script.text for script in scripts if script.text is not None and not _is_data(script)]
    return PreparedPage(
        f'{page[:front]}<script src="{sdk}" crossorigin></script>{page[front:]}',
        [csp_hash(script) for script in inline[:MAX_INLINE]],
    )


def decode_html(content: bytes) -> str:
    """Decode a page as a browser does, with normalized line ends: browsers hash scripts in this form."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if wide else "utf-8-sig", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def csp_hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def doctype_end(text: str) -> int:
    """Return the position after the doctype: a script in front of it would cause quirks mode."""
    position = 0
    while True:
        while text[position : position + 1] and text[position] in _SPACE:
            position += 1
        if text.startswith("<!--", position):
            opened, closes = 4, "-->"
        elif text.startswith("<?", position):
            opened, closes = 2, ">"
        elif text[position : position + 9].lower() == "<!doctype":
            return text.find(">", position) + 1
        else:
            return 0
        position = text.find(closes, position + opened) + len(closes)
        if position < len(closes):
            return 0


def find_scripts(text: str) -> Iterator[Script]:
    """Yield the scripts in order. A script in a comment or without an end tag does not run."""
    position = 0
    while (tag := _TAG.search(text, position)) is not None:
        if tag[0] == "<!--":
            position = text.find("-->", tag.end() - 2) + 3
            if position < 3:
                return
            continue
        attributes, position = _attributes(text, tag.end())
        end = _END.search(text, position)
        if end is None:
            return
        yield Script(tag.end(), attributes, None if "src" in attributes else text[position : end.start()])
        position = end.end()


def _attributes(text: str, position: int) -> tuple[dict[str, str], int]:
    """Return the attributes of the tag whose name ends at `position`, and the position behind the tag."""
    found: dict[str, str] = {}
    while (attribute := _ATTRIBUTE.match(text, position)) is not None:
        found.setdefault(attribute[1].lower(), (attribute[2] or "").strip("'\""))
        position = attribute.end()
    close = text.find(">", position)
    return found, len(text) if close < 0 else close + 1


def _is_data(script: Script) -> bool:
    return any(word in script.attributes.get("type", "").lower() for word in _DATA)
