"""As much of google-re2 as we use; it comes without types."""

from typing import AnyStr

class error(Exception): ...  # noqa: N801

class Options:
    log_errors: bool
    case_sensitive: bool
    max_mem: int
    never_nl: bool
    never_capture: bool

class Match:
    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...

class Regexp:
    @property
    def programsize(self) -> int: ...
    def search(self, text: bytes, pos: int = 0, endpos: int | None = None) -> Match | None: ...
    def fullmatch(self, text: bytes) -> Match | None: ...

def compile(pattern: bytes, options: Options | None = None) -> Regexp: ...  # noqa: A001
def escape(pattern: AnyStr) -> AnyStr: ...
