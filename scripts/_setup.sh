# Sourced by the scripts beside it, from the project's folder: what the machine must have, and the environment in .venv.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# What is missing is collected first, so that whoever has to install it by hand is asked once.
packages=()
reasons=()

want() { # PACKAGE REASON
  packages+=("$1")
  reasons+=("  $1: $2")
}

install_wanted() {
  [ ${#packages[@]} -gt 0 ] || return 0
  say "Missing on this machine:" && printf '%s\n' "${reasons[@]}" >&2
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    die "Install it as root, then run this again:  apt-get install --no-install-recommends ${packages[*]}"
  fi
  say "Installing with apt-get: ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${packages[@]}"; } >/dev/null; then
    die "apt-get failed. By hand:  apt-get install --no-install-recommends ${packages[*]}"
  fi
  packages=() reasons=()
}

have_uv() { uv --version >/dev/null 2>&1; }

want_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "python3 of version 3.11 or later is missing: everything here is written in it. On Debian 12 or later:  apt-get install python3"
  have_uv || [ -x .cache/bin/uv ] || python3 -c 'import ensurepip, venv' 2>/dev/null ||
    want python3-venv "an environment for uv, which installs the Python packages that uv.lock names"
}

java_major() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

want_java_runtime() {
  local major
  major=$(java_major || true)
  [ "${major:-0}" -ge 17 ] || want default-jre-headless "Java 17 or later, for Spark and for ZooKeeper"
}

want_openssl() {
  command -v openssl >/dev/null || want openssl "certificates for the tests of TLS"
}

want_curl() {
  command -v curl >/dev/null || want curl "asks the service as its page says, in a test"
}

want_gpg() {
  command -v gpg >/dev/null || want gnupg "backups that are encrypted, in a test"
}

want_sshd() {
  { command -v sshd || [ -x /usr/sbin/sshd ]; } >/dev/null || want openssh-server "hosts reached over ssh, on loopback, in a test of rescue"
  command -v ssh >/dev/null || want openssh-client "the same"
}

want_browser() {
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    want chromium "a real browser for the report pages"
}

want_java() {
  local major
  major=$(java_major || true)
  if [ "${major:-0}" -lt 17 ] || ! command -v javac >/dev/null; then
    want default-jdk-headless "Java 17 or later, for Spark and for the real BookKeeper that the tests run"
  fi
  command -v mvn >/dev/null || want maven "fetches the jars of the real BookKeeper"
}

# Prometheus' own tool for its rules, without Prometheus; where it cannot be had, its tests say so and are left out.
fetch_promtool() {
  if command -v promtool >/dev/null || [ -x .cache/bin/promtool ] || ! command -v apt-get >/dev/null; then return 0; fi
  local folder
  folder=$(mktemp -d)
  if (cd "$folder" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
    mkdir -p .cache/bin
    mv "$folder/usr/bin/promtool" .cache/bin/
  else
    say "No promtool (apt-get download prometheus): the tests of the alerts are left out"
  fi
  rm -rf "$folder"
}

want_gssapi() {
  ldconfig -p 2>/dev/null | grep -q libgssapi_krb5.so.2 || want libgssapi-krb5-2 "Kerberos, for ZooKeeper and bookies that ask for it"
}

check_java() {
  local major
  major=$(java_major || true)
  [ "${major:-0}" -ge 17 ] ||
    die "java is version ${major:-none}, and 17 or later is needed. Put it first on PATH; on Debian:  update-alternatives --config java"
}

# uv of the machine, else one of our own; then exactly what uv.lock says. Our own comes onto PATH alone, by a link: the
# environment that it is installed in has a Python, which must not become the Python of what is tested.
sync_python() {
  if ! have_uv; then
    PATH="$PWD/.cache/bin:$PATH"
    if ! have_uv; then
      say "Installing uv into .cache/tools"
      rm -rf .cache/tools
      python3 -m venv .cache/tools
      .cache/tools/bin/python -m pip install -q --disable-pip-version-check 'uv>=0.9,<1' >&2
      mkdir -p .cache/bin
      ln -sfn ../tools/bin/uv .cache/bin/uv
    fi
    export PATH
  fi
  uv sync -q --frozen --all-extras
}
