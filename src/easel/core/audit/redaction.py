"""Redaction of secrets from text. P6

Owns the patterns of keys, tokens, passwords and cookies, including Easel's own. Does not know records or
streams. If in doubt, text is redacted.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote

HIDDEN = "[redacted]"
_REPLACED = r"\[(?:redacted|secret [a-z_][a-z0-9_]{0,63})\]"  # also by `core.secret.mask`
MIN_SECRET_LENGTH = 6  # shorter known secrets are ignored: they would match ordinary words

_NAMES = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|tkn|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|"
    r"secret[-_ ]?key|credentials?|authorization|cookie)"
)
_SECRET_NAME = re.compile(_NAMES + r"\Z", re.IGNORECASE)
# `name: value`, `name=value`, `"name": "value"`, `'name': 'value'`, `(b'name', b'value')`: only the value is
# redacted. A value in quotes ends at the closing quote, any other at the next space or `&`.
_NAMED = re.compile(
    rf"({_NAMES}\\?[\"']?\s{{0,3}}(?:[:=]\s{{0,3}}|,\s{{0,3}}(?=b?\\?[\"'])))(?!{_REPLACED})"
    rf"(?:b?(?P<quote>\\?[\"'])(?!{_REPLACED})(?:(?!(?P=quote))[^\r\n])+"
    rf"|(?:(?:bearer|basic|token)\s{{1,3}})?(?!{_REPLACED})[^\s\"'&\\]+)",
    re.IGNORECASE,
)
_COOKIES = re.compile(
    r"(\bcookie[\"']?\s{0,3}[:=,]\s{0,3}b?[\"']?)(?!\s|\[redacted\])[^\r\n\"']+", re.IGNORECASE
)
_PASSWORD_IN_ADDRESS = re.compile(r"(://[^\s/:@]{0,200}:)(?!\[redacted\])[^\s/@]+(?=@)")
_SHAPES = re.compile(
    "|".join((
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
        r"(?<![A-Za-z0-9])[Bb]earer\s{1,3}(?!\[redacted\])[A-Za-z0-9._~+/=-]{6,}",
        r"(?<![A-Za-z0-9])[Bb]asic\s{1,3}[A-Za-z0-9+/]{16,}={0,2}",
        r"(?<![A-Za-z0-9])(?:sk|pk|rk|gsk|whsec)[-_][A-Za-z0-9_-]{8,}",  # OpenAI, Anthropic, Stripe, Groq
        r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{16,}",  # Google
        r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{8,}",
        r"(?<![A-Za-z0-9])(?:gh[pousr]|github_pat|npm|hf|glpat|xox[a-z]|xapp)[-_][A-Za-z0-9_-]{8,}",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}",
        r"(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"(?<![A-Za-z0-9])easel_[A-Za-z0-9_-]{40,}",  # Easel, see core/token.py
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]+)?",  # JSON Web Token
    ))
)  # fmt: skip
_OUR_COOKIE = re.compile(r"(?<![0-9a-z_])sign_[0-9a-z]{26}\.[0-9a-f]{64}(?![0-9a-f])")

# Searched before `_OUR_COOKIE`, because this search costs a tenth of it.
_END_OF_OUR_COOKIE = re.compile(r"\.[0-9a-f]{64}")

# `_COOKIES` and `_NAMED` match only texts with one of these words, `_SHAPES` only texts with one of these
# signs. Searching for them costs a hundredth of matching the patterns, and most texts have none.
_WORDS_OF_NAMES = ("pass", "pwd", "secret", "token", "tkn", "key", "credential", "authorization", "cookie")
_SIGNS_OF_SHAPES = (
    *[
        "-----BEGIN",
        "earer",
        "asic",
        "sk-",
        "sk_",
        "pk-",
        "pk_",
        "rk-",
        "rk_",
        "whsec",
        "AIza",
        "ya29.",
        "github_pat",
        "glpat",
    ],
    # With `-` or `_`, because the letters alone are part of many of Easel's ids.
    *(f"{letters}{dash}" for letters in ("ghp", "gho", "ghu", "ghs", "ghr", "npm", "hf") for dash in "-_"),
    *["xox", "xapp", "AKIA", "ASIA", "SG.", "eyJ", "easel_"],
)

_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_END = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
MAX_TAIL_LENGTH = 1_000


def unfinished_tail(text: str) -> str:
    """Return the end of a text that must be redacted together with the text that follows.

    This is the first line of a private key whose end is missing, or else the last line, in which a secret may
    be incomplete.
    """
    begins = list(_KEY_BEGIN.finditer(text)) if "-----BEGIN" in text else []
    if begins and not _KEY_END.search(text, begins[-1].end()):
        return begins[-1].group()
    last = text[-MAX_TAIL_LENGTH:]
    words = last.rstrip()
    return last[max(words.rfind("\n"), words.rfind("\r")) + 1 :]


def is_secret_name(name: str) -> bool:
    """Return whether a field of this name holds a secret: `api_key` does, `max_tokens` does not."""
    return _SECRET_NAME.search(name) is not None


class Redaction:
    """Redacts text that looks like a secret, and every occurrence of the `known` secrets."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {
            form
            for secret in known
            if len(secret) >= MIN_SECRET_LENGTH
            for form in (secret, quote(secret, safe=""))
        }
        # Longest first, so that a secret that begins with another secret is redacted completely.
        self._known = (
            re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
            if forms
            else None
        )

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        if "://" in text:
            text = _PASSWORD_IN_ADDRESS.sub(rf"\g<1>{HIDDEN}", text)
        lower = text.lower()
        if any(word in lower for word in _WORDS_OF_NAMES):
            text = _COOKIES.sub(rf"\g<1>{HIDDEN}", text)
            text = _NAMED.sub(rf"\g<1>\g<quote>{HIDDEN}", text)
        if any(sign in text for sign in _SIGNS_OF_SHAPES):
            text = _SHAPES.sub(HIDDEN, text)
        return _OUR_COOKIE.sub(HIDDEN, text) if _END_OF_OUR_COOKIE.search(text) else text
