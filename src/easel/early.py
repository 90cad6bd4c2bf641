"""The first moments of a command, in which its parts are imported: Ctrl-C ends it then without a word, and not with a traceback."""

import signal
from types import TracebackType


class QuietlyEnded:
    """While it is entered, Ctrl-C is the system's; afterwards whoever had it has it again."""

    def __enter__(self) -> None:
        self._before = None
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody imports us who knows what to do
            try:
                self._before = signal.signal(signal.SIGINT, signal.SIG_DFL)
            except ValueError:  # not in the main thread, which is the only one that hears it
                return

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
