# A bare Debian in a folder, with Python and no more, made once in .cache/fresh: sourced, not run. `make_bare` makes $bare.
. scripts/_setup.sh

readonly bare=$PWD/.cache/fresh/bare

make_bare() {
  [ -d "$bare" ] && return
  [ "$(id -u)" = 0 ] || die "scripts/soak fresh makes a system of its own (debootstrap, chroot): run it as root"
  command -v debootstrap >/dev/null || want debootstrap "makes the bare Debian"
  install_wanted
  local fresh=$bare.$$ name
  mkdir -p "$fresh"
  say "Making a bare Debian in $bare"
  name=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
  debootstrap --variant=minbase --include=ca-certificates,python3 "$name" "$fresh" >"$fresh.log" 2>&1 ||
    die "debootstrap failed: $(tail -n 3 "$fresh.log")"
  rm -f "$fresh/etc/apt/sources.list"
  cp -a /etc/apt/sources.list* "$fresh/etc/apt/"
  cp -a /usr/local/share/ca-certificates "$fresh/usr/local/share/"
  chroot "$fresh" update-ca-certificates >/dev/null 2>&1
  mv "$fresh" "$bare"
}
