#!/usr/bin/env bash
# Make the hashed locks anew from requirements/*.in: `make lock`, or `make lock ARGS=--upgrade`.
# The locks name no host and no path, and hold for Python 3.11 and newer on Linux and macOS.
set -euo pipefail
cd "$(dirname "$0")/../requirements"
uv=${UV:-uv}

compile() {
  # No configuration of this machine: the hashes must be those of the public registry.
  env -u UV_INDEX -u UV_INDEX_URL -u UV_DEFAULT_INDEX -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
    "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links "${@:2}" "$1.in" --output-file "$1.txt"
  echo "easel: locked requirements/$1.txt"
}

# The runtime comes first: the others take its versions as given.
for name in runtime build lock test bench; do
  compile "$name" "$@"
done
compile model --no-deps "$@"
