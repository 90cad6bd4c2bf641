"""Replacement of known secrets by their names, in everything that comes back from a call. RS-66

Owns the forms in which a secret is recognised: as it is, without spaces around it, each of its lines, inside
JSON, HTML, a URL and quotes of a shell, and in Base64. A part of a long secret is recognised too, because
output is cut and wrapped. Text that was transformed in another way is not recognised. The time is linear in
the length of the text. `ACTIVE` is the mask of the call that runs: logs and audit records use it.
"""

import base64
import html
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import quote, quote_plus

MIN_FORM_LENGTH = 6
# So many consecutive characters of a form are replaced also where the rest of the form is missing.
PART_LENGTH = 24
CUT = "left out] …\n"  # ends the note in a shortened output, see `sandbox.output` and `node.calls`
MAX_HELD_LENGTH = 4_096  # of a secret whose end may be continued to another one
_MIN_HELD_PART = 3  # a shorter end of a text may be in a secret by chance, and is shown at once
_MAX_PERIOD = 64  # of a form that repeats itself, such as a row of the same character
_MAX_TRIES = 50  # to find the beginning of one form at the end of a text
_IN_JSON_OF_GO = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
_IN_DOUBLE_QUOTES = {ord(char): f"\\{char}" for char in '\\"$`'}  # as `declare -p` of bash


class SecretMask:
    """Replaces the values of some secrets by `[secret NAME]`."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form: name for name, value in sorted(values.items()) for form in _forms_of(value)}
        # Longest first: where a secret begins with another one, the longer one is named.
        self._forms = sorted(forms.items(), key=lambda item: (-len(item[0]), item[0]))
        self._repeats = {form: _repeat_of(form) for form in forms}
        self._parts: dict[str, str] = {}
        self._long: list[str] = []  # the forms whose parts are recognised
        for name, value in sorted(values.items()):
            for form in (value, _base64(value)):
                if len(form) > PART_LENGTH:
                    self._long.append(form)
                for start in range(len(form) - PART_LENGTH if len(form) > PART_LENGTH else -1, -1, -1):
                    self._parts[form[start : start + PART_LENGTH]] = name

    def text(self, text: str) -> str:
        """Return the text with every secret replaced."""
        pieces, end = list[str](), 0
        for start, stop, name in self.find(text):
            pieces += [text[end:start], f"[secret {name}]"]
            end = stop
        return "".join([*pieces, text[end:]]) if pieces else text

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """Return the places of secrets in order: begin, end and name. Overlapping places are joined."""
        places: list[tuple[int, int, str]] = []
        for start, stop, name in sorted(self._find(text), key=lambda place: (place[0], -place[1])):
            if places and start < places[-1][1]:
                first = places.pop()
                places.append((first[0], max(first[1], stop), first[2]))
            else:
                places.append((start, stop, name))
        return places

    def _find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the places of all forms and parts, which may overlap."""
        for form, name in self._forms:
            repeat = self._repeats[form]
            start = text.find(form)
            while start >= 0:
                stop = start + len(form)
                while repeat and text.startswith(repeat, stop):
                    stop += len(repeat)
                yield start, stop, name
                start = text.find(form, stop - len(form) + 1)
        if self._parts:
            for start in range(len(text) - PART_LENGTH + 1):
                if (name := self._parts.get(text[start : start + PART_LENGTH])) is not None:
                    yield start, start + PART_LENGTH, name
        cut = text.find(CUT)
        if cut >= 0:
            yield from self._find_cut(text, text.rfind("\n…", 0, cut), cut + len(CUT))

    def _find_cut(self, text: str, end: int, start: int) -> Iterator[tuple[int, int, str]]:
        """Yield a beginning of a secret that ends at `end`, and an end of one that begins at `start`."""
        begin, name = self.beginning_at_end(text[: max(end, 0)])
        if name is not None:
            yield begin, end, name
        after = text[start : start + len(self._forms[0][0])] if self._forms else ""
        for form, name in self._forms:
            # The longest end of the form with which the text goes on is the beginning of the reversed form.
            backwards = after[: len(form) - 1][::-1]
            if size := len(backwards) - _find_beginning(backwards, form[::-1]):
                yield start, start + size, name

    def beginning_at_end(self, text: str) -> tuple[int, str | None]:
        """Return where the longest end of the text begins that may be continued to a secret, and its name."""
        best, best_name = len(text), None
        for form, name in self._forms:
            if (start := _find_beginning(text, form)) < best:
                best, best_name = start, name
        return best, best_name

    def may_continue_at(self, text: str) -> int:
        """Return where the end of the text begins that may be continued to a secret or a part of one."""
        begin, _ = self.beginning_at_end(text)
        sizes = range(min(PART_LENGTH - 1, len(text)), _MIN_HELD_PART - 1, -1)
        middle = next((size for size in sizes if any(text[-size:] in form for form in self._long)), 0)
        return min(begin, len(text) - middle)

    def value(self, value: Any) -> Any:
        """Return the JSON value with every secret replaced, also in names of members and in numbers."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            members = cast("Mapping[Any, Any]", value)
            return {self.value(name): self.value(item) for name, item in members.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            text = json.dumps(value)
            return value if (masked := self.text(text)) == text else masked
        return value


class MaskedStream:
    """Passes text on in pieces with secrets replaced. A piece that may begin a secret is held back."""

    def __init__(self, mask: SecretMask, send: Callable[[str], None]) -> None:
        self._mask = mask
        self._send = send
        self._held = ""

    def feed(self, text: str) -> None:
        text = self._held + text
        end = self._mask.may_continue_at(text)
        # The end of a complete secret may be the beginning of another one, which hides more.
        for start, stop, _ in self._mask.find(text) if end < len(text) else ():
            if start < end < stop:
                end = start if stop - start <= MAX_HELD_LENGTH else stop
        self._held = text[end:]
        if shown := self._mask.text(text[:end]):
            self._send(shown)

    def close(self) -> None:
        """Pass the rest on; the beginning of a secret is replaced too, because its end may have been cut."""
        rest, self._held = self._held, ""
        begin, name = self._mask.beginning_at_end(rest)
        places = self._mask.find(rest)
        if name is not None and len(rest) - begin >= MIN_FORM_LENGTH:
            begin = next((start for start, stop, _ in places if start < begin < stop), begin)
            masked = f"{self._mask.text(rest[:begin])}[secret {name}]"
        else:
            masked = self._mask.text(rest)
        if masked:
            self._send(masked)


ACTIVE: ContextVar[SecretMask | None] = ContextVar("secrets", default=None)


def mask_active(text: str) -> str:
    """Return the text with the secrets of the running call replaced, if there is one."""
    mask = ACTIVE.get()
    return text if mask is None else mask.text(text)


def _forms_of(value: str) -> set[str]:
    """Return the texts in which the value is recognised."""
    stripped = value.strip()
    forms = {form for text in (value, stripped) for form in _encoded(text)}
    forms |= {line.strip() for line in value.splitlines()}
    return {form for form in forms if len(form) >= MIN_FORM_LENGTH}


def _encoded(value: str) -> set[str]:
    in_json = json.dumps(value)[1:-1]
    urls = {
        quote(value, safe=""),
        quote(value, safe="/"),
        quote_plus(value),
        quote(value, safe="!'()*"),  # as encodeURIComponent
        quote(value, safe="!'()*;,/?:@&=+$#"),  # as encodeURI
    }
    return {
        value,
        in_json,
        json.dumps(value, ensure_ascii=False)[1:-1],
        in_json.replace("/", "\\/"),
        json.dumps(value, ensure_ascii=False)[1:-1].translate(_IN_JSON_OF_GO),
        repr(value)[1:-1],  # as an error of Python
        html.escape(value),
        html.escape(value, quote=False),
        value.translate(_IN_DOUBLE_QUOTES),
        value.replace("'", "'\\''"),
        *urls,
        *(_lower_hex(url) for url in urls),
        base64.b64encode(value.encode()).decode(),
        *(part for offset in range(3) for part in _base64_parts(value, offset)),
    }


def _repeat_of(form: str) -> str:
    """Return the text of at most `_MAX_PERIOD` characters that the form repeats, or empty text."""
    if len(form) <= PART_LENGTH:
        return ""
    sizes = range(1, min(_MAX_PERIOD, len(form) // 2) + 1)
    return next((form[-size:] for size in sizes if form.startswith(form[size:])), "")


def _find_beginning(text: str, form: str) -> int:
    """Return where the longest end of the text begins that is a beginning of the form, not all of it."""
    probe = form[:PART_LENGTH]
    start = text.find(probe, max(0, len(text) - len(form) + 1))
    for _ in range(_MAX_TRIES):
        if start < 0:
            break
        if form.startswith(text[start:]):
            return start
        start = text.find(probe, start + 1)
    else:
        return len(text) - _count_matching(text[1 - len(form) :], form)
    sizes = range(min(len(probe), len(form), len(text) + 1) - 1, 0, -1)
    return next((len(text) - size for size in sizes if text.endswith(form[:size])), len(text))


def _count_matching(text: str, form: str) -> int:
    """Return the length of the longest end of the text that is a beginning of the form, in linear time.

    This is the algorithm of Knuth, Morris and Pratt; `shorter[n]` is the length of the longest beginning of
    the form that ends its first `n` characters, except those themselves.
    """
    shorter, size = [0, 0], 0
    for char in form[1:]:
        while size and form[size] != char:
            size = shorter[size]
        size += form[size] == char
        shorter.append(size)
    size = 0
    for char in text:
        while size and form[size] != char:
            size = shorter[size]
        size += form[size] == char
    return size


def _lower_hex(url: str) -> str:
    first, *rest = url.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _base64_parts(value: str, offset: int) -> tuple[str, str]:
    """Return the Base64 of the value after `offset` other bytes, without the characters that others share."""
    encoded = base64.b64encode(b"\0" * offset + value.encode()).decode()
    first = (offset * 8 + 5) // 6
    part = encoded[first : (offset + len(value.encode())) * 8 // 6]
    return part, part.translate({ord("+"): "-", ord("/"): "_"})


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode().rstrip("=")
