"""The first moments of a command, in which its parts are imported: Ctrl-C ends it then without a word, and not with a traceback."""

import signal
import sys


def main() -> None:
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us meant it so: `nohup`, a shell's `&`
    if hears:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from easel.cli.app import main as run  # noqa: PLC0415 - the second that this is about

    try:
        if hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell says it
