#!/usr/bin/env bash
# Prints the interpreter to build the environment from, as four lines: its real path, its version (3.11),
# the version of the C library it runs on (2.36), and the folder of its shared libraries.
#
#   TOKENMILL_PYTHON=/path/to/python3   take this one and no other
#
# Exit status 1, with one line on stderr, if there is none that fits.
set -euo pipefail

project=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)

# The first is the one that is tested most; all four have wheels of every locked dependency.
versions="3.11 3.12 3.10 3.13"
remedy="install one (Debian, Ubuntu: apt-get install python3 python3-venv) or set TOKENMILL_PYTHON=/path/to/python3"

# Runs in a candidate. The last line of what it prints is what the candidate lacks, empty if nothing.
# shellcheck disable=SC2016 # Python, not shell
probe='
import importlib, os, sys, sysconfig
try:
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
except (ValueError, OSError):
    libc = ""
version = "%d.%d" % sys.version_info[:2]
lacks = ""
if sys.implementation.name != "cpython" or version not in sys.argv[1].split():
    lacks = "is %s %s" % (sys.implementation.name, version)
elif sysconfig.get_config_var("Py_GIL_DISABLED"):
    lacks = "is the free-threaded build, which few packages have wheels for"
elif sys.maxsize < 2**32:
    lacks = "is a 32-bit build"
else:
    for module in ("bz2", "ctypes", "lzma", "sqlite3", "ssl", "zlib"):
        try:
            importlib.import_module(module)
        except ImportError:
            lacks = "was built without the module " + module
    try:
        importlib.import_module("venv")
        importlib.import_module("ensurepip")
    except ImportError:
        lacks = "has no venv module (Debian, Ubuntu: apt-get install python%s-venv)" % version
print(os.path.realpath(sys._base_executable), version, libc, sysconfig.get_config_var("LIBDIR") or "", lacks, sep="\n")
'

main() {
  local candidate found lacks='' unfit=''
  while read -r candidate; do
    [ -n "$candidate" ] || continue
    # A pyenv shim of a version that is not active fails here, and so do broken links.
    found=$("$candidate" -I -c "$probe" "$versions" 2>/dev/null && printf .) || continue
    # An activated .venv: what is to be made cannot be made from itself.
    case $found in "$project"/*) continue ;; esac
    found=${found%$'\n.'}
    lacks=${found##*$'\n'}
    if [ -z "$lacks" ]; then
      printf '%s\n' "${found%$'\n'*}"
      return
    fi
    : "${unfit:="$candidate $lacks"}"
  done < <(candidates)
  if [ -n "${TOKENMILL_PYTHON:-}" ]; then
    echo "error: TOKENMILL_PYTHON=$TOKENMILL_PYTHON ${lacks:-does not run}; give a CPython 3.10 to 3.13 with venv" >&2
  elif [ -n "$unfit" ]; then
    echo "error: no usable CPython 3.10 to 3.13: $unfit; $remedy" >&2
  else
    echo "error: no CPython 3.10 to 3.13 on PATH or in pyenv; $remedy" >&2
  fi
  return 1
}

candidates() {
  local version
  if [ -n "${TOKENMILL_PYTHON:-}" ]; then
    printf '%s\n' "$TOKENMILL_PYTHON"
    return
  fi
  for version in $versions; do
    type -ap "python$version" || true
    # Installed with pyenv but not the active version: the shim on PATH fails, the interpreter works.
    compgen -G "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}/versions/$version.*/bin/python$version" || true
  done
  type -ap python3 python || true
}

main
