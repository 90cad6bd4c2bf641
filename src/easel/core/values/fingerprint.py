"""The fingerprint of a JSON value: equal for equal values, regardless of the order of object members."""

import hashlib
import json
from typing import Any


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the value as canonical JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
