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

CROSSORIGIN = " crossorigin=anonymous"
LENGTH = "#####"  # replaced by the length of the SDK's element, with as many digits
MAX_INLINE = 50  # inline scripts of a page; each hash makes the header longer, and proxies limit headers

_SPACE = " \t\n\f"
_TAG = re.compile(r"<script(?=[\s/>])|<!--", re.IGNORECASE)
_END = re.compile(r"</script(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_DATA = ("json", "template", "plain")  # words in the `type` of a script element that contains data


@dataclass(frozen=True, slots=True)
class Script:
    """A script element. `name_end` is the position after `<script`; `text` is None if it has a `src`."""

    name_end: int
    text_start: int
    attributes: dict[str, str]
    text: str | None


def prepare_page(content: bytes, sdk: str) -> tuple[str, list[str]]:
    """Return the page with the SDK in front, and the hashes of its inline scripts.

    The inserted text has no line breaks. If it moves an inline script to the right, `data-shifts` of the SDK
    lists where (line:column:length of the stored page), so that errors are reported at the author's place.
    """
    text = decode_html(content)
    scripts = list(find_scripts(text))
    # Without this attribute a browser hides the errors of a script behind "Script error.".
    unmarked = [
        script.name_end
        for script in scripts
        if script.text is None and "crossorigin" not in script.attributes
    ]
    front = doctype_end(text)
    starts = [script.text_start for script in scripts if script.text is not None]
    insertions = [(front, LENGTH), *((position, f"{len(CROSSORIGIN):d}") for position in unmarked)]
    shifts = ",".join(_find_shifts(text, insertions, starts))
    attribute = f' data-shifts="{shifts}"' if shifts else ""
    tag = f'<script src="{sdk}"{attribute} crossorigin></script>'
    tag = tag.replace(LENGTH, f"{len(tag):0{len(LENGTH)}d}")
    pieces, done = list[str](), 0
    for position, inserted in [(front, tag), *((position, CROSSORIGIN) for position in unmarked)]:
        pieces += [text[done:position], inserted]
        done = position
    inline = [script.text for script in scripts if script.text is not None and not _is_data(script)]
    return "".join([*pieces, text[done:]]), [csp_hash(script) for script in inline[:MAX_INLINE]]


def _find_shifts(text: str, insertions: list[tuple[int, str]], starts: list[int]) -> Iterator[str]:
    """Yield line, column and length of the insertions that have an inline script behind them on their line.

    Columns count from 1 in UTF-16 units, as in browsers. `starts` are the positions of the inline scripts.
    """
    line, column, done = 1, 1, 0
    on_line: list[str] = []  # insertions on this line, which an inline script may follow
    for position, length in sorted([*insertions, *((start, "") for start in starts)]):
        before = text[done:position]
        done = position
        if "\n" in before:
            line, column, on_line = line + before.count("\n"), 1, []
            before = before[before.rindex("\n") + 1 :]
        column += len(before.encode("utf-16-le", "surrogatepass")) // 2
        if length:
            on_line.append(f"{line}:{column}:{length}")
        else:
            yield from on_line
            on_line = []


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
        text_or_none = None if "src" in attributes else text[position : end.start()]
        yield Script(tag.end(), position, attributes, text_or_none)
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
