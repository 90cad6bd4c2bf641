"""Serve one vendor: `python -m tests.llm.vendors anthropic --port 8123 --script answers.json [--key KEY]`.

Prints the base URL. The script is a JSON list of answers (see `tests/llm/vendors/answers.py`), used in order:

    [{"text": "I make it.", "calls": [{"tool": "gsv__Canvas", "args": {"operation": "list"}}]},
     {"text": "Done."}]
"""

import argparse
import signal
import threading
from pathlib import Path

from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import load_answers
from tests.llm.vendors.server import KEY, VendorServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.llm.vendors")
    parser.add_argument("vendor", choices=sorted(VENDORS))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, default=None)
    parser.add_argument("--key", default=KEY)
    options = parser.parse_args()
    answers = load_answers(options.script) if options.script else []
    server = VendorServer(VENDORS[options.vendor](), answers, key=options.key, port=options.port)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    print(server.base_url, flush=True)
    stopped.wait()
    server.stop()


if __name__ == "__main__":
    main()
