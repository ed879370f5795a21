#!/usr/bin/env bash
# Tries the README's two commands on a machine that has nothing: a bare Debian in a folder, with Python and no more.
#
#     scripts/soak fresh [demo|test] [pytest's arguments]      both, where none is named; as root
#
# The bare system is made once, in .cache/fresh, and each run works on a copy. The copy gets a clone of what is committed
# here, and of this machine only how the network is reached: name servers, certificates, and the like.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_bare.sh

# Settings that say how packages are reached. A path among them must be one that the bare system has, too.
readonly network='^(https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|PIP_CERT|PIP_INDEX_URL|SSL_CERT_FILE|UV_DEFAULT_INDEX|UV_INDEX_URL)$'

# Runs in namespaces of its own: mounts and processes end with it.
run_inside() { # ROOT COMMAND...
  local root=$1 setting settings=()
  shift
  while IFS= read -r setting; do
    [[ ${setting%%=*} =~ $network ]] && settings+=("$setting")
  done < <(env)
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t sysfs sysfs "$root/sys"
    exec chroot "$root" "$@"
  ' inside "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${settings[@]}" bash -c 'cd /root/checkout && exec "$@"' command "$@"
}

make_bare
what=(demo test)
if [[ ${1:-} =~ ^(demo|test)$ ]]; then what=("$1") && shift; fi
for name in "${what[@]}"; do
  root=$(mktemp -d "${bare%/*}/$name.XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
  cp -a "$bare/." "$root"
  git clone -q --no-hardlinks . "$root/root/checkout"
  say "scripts/$name on a machine with nothing but Python"
  if [ "$name" = test ]; then run_inside "$root" scripts/test "$@" </dev/null; else run_inside "$root" scripts/demo </dev/null; fi
  rm -rf --one-file-system "$root"
done
