"""What looks like a secret, and what is written in its place. P6

Owns the shapes of keys, tokens, passwords and cookies, ours among them. Text in, text out: it knows neither records nor
streams. It would rather hide a harmless word than show a secret.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote

HIDDEN = "[redacted]"
MIN_KNOWN = 6  # a secret of fewer characters would blank out ordinary words

_NAMES = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|tkn|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|secret[-_ ]?key|"
    r"credentials?|authorization|cookie)"
)
_SECRET_NAME = re.compile(_NAMES + r"\Z", re.IGNORECASE)
# `name: value`, `name=value`, `"name": "value"`, `'name': 'value'`, `(b'name', b'value')`: the value goes, the name stays.
# A value in quotes goes up to the closing one, any other up to the next space or `&`.
_NAMED = re.compile(
    rf"({_NAMES}\\?[\"']?\s{{0,3}}(?:[:=]\s{{0,3}}|,\s{{0,3}}(?=b?\\?[\"'])))(?!\[redacted\])"
    r"(?:b?(?P<quote>\\?[\"'])(?!\[redacted\])(?:(?!(?P=quote))[^\r\n])+"
    r"|(?:(?:bearer|basic|token)\s{1,3})?(?!\[redacted\])[^\s\"'&\\]+)",
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
        r"(?<![A-Za-z0-9])easel_[A-Za-z0-9_-]{40,}",  # ours, for people, nodes and programs
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]+)?",  # a signed token
    ))
)  # fmt: skip
_OUR_COOKIE = re.compile(
    r"(?<![0-9])[0-9]{9,12}\.(?:sign_[0-9a-z]{26}\.(?:tok_[0-9a-z]{26})?\.|tok_[0-9a-z]{26}\.)?[0-9a-f]{64}(?![0-9a-f])"
)

_END_OF_OUR_COOKIE = re.compile(
    r"\.(?:tok_|[0-9a-f]{64})"
)  # a search for it costs a tenth, and every record has a point in its time

# Without one of these no pattern above can match. Looking for them costs a hundredth of matching, and most texts have none.
_WORDS_OF_NAMES = ("pass", "pwd", "secret", "token", "tkn", "key", "credential", "authorization", "cookie")
_SIGNS_OF_SHAPES = (
    *(
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
    ),
    # With what follows: by themselves these letters stand in every other id of ours, and each would cost a whole search.
    *(f"{letters}{dash}" for letters in ("ghp", "gho", "ghu", "ghs", "ghr", "npm", "hf") for dash in "-_"),
    *("xox", "xapp", "AKIA", "ASIA", "SG.", "eyJ", "easel_"),
)


_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
MAX_UNFINISHED_LENGTH = 1_000  # characters of a line that whatever follows it is looked at with


def unfinished(text: str) -> str:
    """What of a text the words after it have to be looked at with: a key that has only begun; else its last line, whose value may be yet to come."""
    begun = list(_KEY_BEGINS.finditer(text)) if "-----BEGIN" in text else []
    if begun and not _KEY_ENDS.search(text, begun[-1].end()):
        return begun[-1].group()
    last = text[-MAX_UNFINISHED_LENGTH:]
    words = last.rstrip()
    return last[max(words.rfind("\n"), words.rfind("\r")) + 1 :]


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret, whatever it looks like: `api_key`, not `max_tokens`."""
    return _SECRET_NAME.search(name) is not None


class Redaction:
    """Hides what looks like a secret, and the secrets that are `known` wherever they stand, whatever they look like."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {
            form for secret in known if len(secret) >= MIN_KNOWN for form in (secret, quote(secret, safe=""))
        }
        # The longest first: a secret that begins with another one goes as a whole.
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
