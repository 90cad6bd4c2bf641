"""Replacement of known secrets by their names, in everything that comes back from a call. RS-66

Owns the forms in which a secret is recognised: as it is, inside JSON, inside a URL, and in Base64. A part of
a long secret is recognised too, because output is cut and wrapped. Text that was transformed in another way
is not recognised. `ACTIVE` is the mask of the call that runs: logs and audit records use it.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import quote, quote_plus

MIN_FORM_LENGTH = 6
# So many consecutive characters of a form are replaced also where the rest of the form is missing.
PART_LENGTH = 24
CUT = "left out] …\n"  # ends the note in a shortened output, see `sandbox.output`


class SecretMask:
    """Replaces the values of some secrets by `[secret NAME]`."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form: name for name, value in sorted(values.items()) for form in _forms_of(value)}
        # Longest first: where a secret begins with another one, the longer one is named.
        self._forms = sorted(forms.items(), key=lambda item: (-len(item[0]), item[0]))
        self._parts: dict[str, str] = {}
        for name, value in sorted(values.items()):
            for form in (value, _base64(value)):
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
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form), name
                start = text.find(form, start + 1)
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
        for form, name in self._forms:
            position = form.find(text[start : start + 1], 1)
            while 0 < position < len(form) and not text.startswith(form[position:], start):
                position = form.find(text[start], position + 1)
            if 0 < position < len(form):
                yield start, start + len(form) - position, name

    def beginning_at_end(self, text: str) -> tuple[int, str | None]:
        """Return where the longest end of the text begins that may be continued to a secret, and its name."""
        best, best_name = len(text), None
        for form, name in self._forms:
            start = text.find(form[0], max(0, len(text) - len(form) + 1))
            while 0 <= start < best:
                if form.startswith(text[start:]):
                    best, best_name = start, name
                    break
                start = text.find(form[0], start + 1)
        return best, best_name

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
        end, _ = self._mask.beginning_at_end(text)
        # The end of a complete secret may look like the beginning of another one.
        end = next((stop for start, stop, _ in self._mask.find(text) if start < end < stop), end)
        self._held = text[end:]
        if shown := self._mask.text(text[:end]):
            self._send(shown)

    def close(self) -> None:
        """Pass the rest on; the beginning of a secret is replaced too, because its end may have been cut."""
        rest, self._held = self._held, ""
        masked = self._mask.text(rest)
        if masked == rest and len(rest) >= MIN_FORM_LENGTH:
            _, name = self._mask.beginning_at_end(rest)
            masked = f"[secret {name}]"
        if masked:
            self._send(masked)


ACTIVE: ContextVar[SecretMask | None] = ContextVar("secrets", default=None)


def mask_active(text: str) -> str:
    """Return the text with the secrets of the running call replaced, if there is one."""
    mask = ACTIVE.get()
    return text if mask is None else mask.text(text)


def _forms_of(value: str) -> set[str]:
    """Return the texts in which the value is recognised."""
    urls = {
        quote(value, safe=""),
        quote(value, safe="/"),
        quote_plus(value),
        quote(value, safe="!'()*"),  # as encodeURIComponent
        quote(value, safe="!'()*;,/?:@&=+$#"),  # as encodeURI
    }
    forms = {
        value,
        *(json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)),
        json.dumps(value)[1:-1].replace("/", "\\/"),
        *urls,
        *(_lower_hex(url) for url in urls),
        base64.b64encode(value.encode()).decode(),
        *(part for offset in range(3) for part in _base64_parts(value, offset)),
    }
    return {form for form in forms if len(form) >= MIN_FORM_LENGTH}


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
