#!/usr/bin/env bash
# Refreshes requirements.lock: every dependency of pyproject.toml at one version, with hashes, for all
# supported Pythons, and without the address of any index. Versions that still fit stay as they are;
# `scripts/lock.sh --upgrade` takes the newest that fit.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CACHE_DIR=${UV_CACHE_DIR:-$PWD/.setup/cache}
new=.setup/requirements.lock
cp requirements.lock "$new" 2>/dev/null || true
.setup/tools/bin/uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 \
  --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet --output-file "$new" "$@"
mv "$new" requirements.lock
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"
