#!/usr/bin/env bash
# Refreshes requirements.lock and scripts/setup-requirements.lock: every dependency that pyproject.toml
# declares, and theirs, at one version, with hashes, for all supported Pythons, without an index's address.
#
#   scripts/lock.sh             versions that still fit stay as they are
#   scripts/lock.sh --upgrade   the newest that fit
#
# Run by `make lock`, which has set up uv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p .setup/tmp
export UV_CACHE_DIR=${UV_CACHE_DIR:-$PWD/.setup/cache} TMPDIR=$PWD/.setup/tmp
eval "$(.setup/tools/bin/python -I scripts/package_index.py environment)"

# compile FILE ARGUMENT...: FILE anew, or as it was if anything fails.
compile() {
  local file=$1 partial=.setup/tmp/compiled.lock
  shift
  cp "$file" "$partial"
  .setup/tools/bin/uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
    --no-header --annotation-style line --quiet --output-file "$partial" "$@"
  mv "$partial" "$file"
  echo "$file: $(grep -c '==' "$file") packages"
}

compile requirements.lock --all-extras pyproject.toml "$@"
compile scripts/setup-requirements.lock --group setup "$@"
