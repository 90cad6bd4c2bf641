"""The HTML of a canvas, made ready to be shown: with the SDK in front, and with the hashes of the scripts that it came with.

The asset itself stays as it is (CV-06). A script that was written in the page runs by its hash; one that got into it later, by a value
put where HTML was meant, does not. Pages are read in one go from front to back, so that no page takes longer than its length.
"""

import base64
import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_INLINE = 50  # scripts in one page; each hash makes the header longer, and proxies cut long ones

_SPACE = " \t\n\f"
_TAG = re.compile(r"<script(?=[\s/>])|<!--", re.IGNORECASE)
_END = re.compile(r"</script(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_DATA = ("json", "template", "plain")  # types of scripts that are data, and do not run


@dataclass(frozen=True, slots=True)
class Ready:
    html: str
    hashes: list[str]


@dataclass(frozen=True, slots=True)
class Script:
    """`name_ends` is where its tag can be added to; `text` is what stands in it, None of one that is loaded."""

    name_ends: int
    attributes: dict[str, str]
    text: str | None


def ready(content: bytes, sdk: str) -> Ready:
    text = decoded(content)
    found = list(scripts(text))
    pieces, done = list[str](), 0
    for script in found:
        if script.text is None and "crossorigin" not in script.attributes:
            # So that an error in it is told with its place: without this it is "Script error." and nothing else.
            pieces += [text[done : script.name_ends], " crossorigin=anonymous"]
            done = script.name_ends
    snapshot = "".join([*pieces, text[done:]])
    front = after_doctype(snapshot)
    inline = [script.text for script in found if script.text is not None and not _is_data(script)]
    return Ready(
        f'{snapshot[:front]}<script src="{sdk}" crossorigin></script>{snapshot[front:]}',
        [hashed(one) for one in inline[:MAX_INLINE]],
    )


def decoded(content: bytes) -> str:
    """As a browser reads it that is told UTF-8; line ends are one character to it, and to a hash."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if wide else "utf-8-sig", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def hashed(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def after_doctype(text: str) -> int:
    """Where the SDK goes: in front of a doctype it would make a browser fall back to the ways of the nineties."""
    place = 0
    while True:
        while text[place : place + 1] and text[place] in _SPACE:
            place += 1
        if text.startswith("<!--", place):
            opened, closes = 4, "-->"
        elif text.startswith("<?", place):
            opened, closes = 2, ">"
        elif text[place : place + 9].lower() == "<!doctype":
            return text.find(">", place) + 1
        else:
            return 0
        place = text.find(closes, place + opened) + len(closes)
        if place < len(closes):
            return 0


def scripts(text: str) -> Iterator[Script]:
    """In order. What a comment hides is none; what has no end does not run."""
    place = 0
    while (tag := _TAG.search(text, place)) is not None:
        if tag[0] == "<!--":
            place = text.find("-->", tag.end() - 2) + 3
            if place < 3:
                return
            continue
        attributes, place = _attributes(text, tag.end())
        end = _END.search(text, place)
        if end is None:
            return
        yield Script(tag.end(), attributes, None if "src" in attributes else text[place : end.start()])
        place = end.end()


def _attributes(text: str, place: int) -> tuple[dict[str, str], int]:
    """Of a tag whose name ends here, and where the tag itself ends."""
    found: dict[str, str] = {}
    while (one := _ATTRIBUTE.match(text, place)) is not None:
        found.setdefault(one[1].lower(), (one[2] or "").strip("'\""))
        place = one.end()
    close = text.find(">", place)
    return found, len(text) if close < 0 else close + 1


def _is_data(script: Script) -> bool:
    return any(word in script.attributes.get("type", "").lower() for word in _DATA)
