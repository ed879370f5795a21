#!/usr/bin/env bash
# Builds conf/Containerfile and runs what it made, with a bare Debian of this machine's own in the place of the one that
# it names:  scripts/soak image      as root, with buildah; no registry of images is asked
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_bare.sh

make_bare
command -v buildah >/dev/null || want buildah "builds the image"
install_wanted
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
work=$(mktemp -d "$PWD/.cache/image.XXXXXX")
store() { buildah --root "$work/root" --runroot "$work/run" "$@"; }
close() {
  for mounted in $(store containers -q 2>/dev/null); do store rm "$mounted" >/dev/null; done
  rm -rf --one-file-system "$work"
}
trap close EXIT

say "A base image of $bare"
base=$(store from scratch)
store add -q "$base" "$bare" / >/dev/null
# How this machine reaches packages.
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$work/pip.conf"
store copy -q "$base" "$work/pip.conf" /etc/pip.conf >/dev/null
store commit -q "$base" bare >/dev/null
say "conf/Containerfile"
store build -q --pull=never --build-arg BASE=localhost/bare -f conf/Containerfile -t bkmeta . >/dev/null
say "bkmeta of the image, as its user"
container=$(store from --pull=never localhost/bkmeta)
inside() { store run --user 10001 "$container" -- "$@"; }
inside bkmeta --version
inside bkmeta doctor --spark
printf 'metadata = "zk+hierarchical://127.0.0.1:1/ledgers"\ndata = "/var/lib/bkmeta"\n' >"$work/serve.toml"
store copy -q "$container" "$work/serve.toml" /etc/bkmeta/serve.toml >/dev/null
inside bkmeta serve --config /etc/bkmeta/serve.toml --check
[ "$(store inspect --format '{{.OCIv1.Config.User}}' "$container")" = 10001 ] || die "the image runs as root"
if [ "${1:-}" = demo ]; then
  # The demo's servers are this machine's, and its folders below /tmp; the image's program reads and writes there.
  cat >"$work/bkmeta" <<END
#!/usr/bin/env bash
exec env STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot buildah --root "$work/root" --runroot "$work/run" run --volume "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}" "$container" -- bkmeta "\$@"
END
  chmod +x "$work/bkmeta"
  sync_python
  .venv/bin/python -m scripts.newcomer demo "$work/bkmeta" | tail -n 16
fi
say "The image was built, and runs: $(du -sm "$(store mount "$container")" | cut -f1) MB unpacked"
