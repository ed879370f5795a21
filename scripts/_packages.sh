#!/usr/bin/env bash
# Makes a .deb and a .rpm of the program in one file (scripts/pack collect), and tries both: scripts/soak packages [FOLDER]
#
# Each has the program, its manual, completion for three shells, and systemd's units of conf/ that it can run. Each is
# unpacked into a folder of its own, where dpkg and rpm verify what they installed and the program runs by its new name.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh
out=$(realpath -m "${1:-.cache/packages}")
MOST=80000000
UNITS=(bkmeta-backup.service bkmeta-capture.service bkmeta-capture.timer)
DESCRIPTION="Brings lost Apache BookKeeper metadata back"

want_python
command -v dpkg-deb >/dev/null || want dpkg "dpkg-deb makes the .deb"
command -v rpmbuild >/dev/null || want rpm "rpmbuild makes the .rpm"
command -v objdump >/dev/null || want binutils "PyInstaller looks into libraries"
install_wanted
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' recovery/__init__.py)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
root=$made/root
mkdir -p "$out"

program=${PROGRAM:-$made/bkmeta}
[ -n "${PROGRAM:-}" ] || scripts/pack collect "$program"
size=$(stat -c %s "$program")
say "program: $((size / 1000000)) MB"
[ "$size" -le $MOST ] || die "the program takes more than $((MOST / 1000000)) MB"

# What both have.
install -D -m 0755 "$program" "$root/usr/bin/bkmeta"
install -D -m 0755 conf/bkmeta-capture "$root/usr/bin/bkmeta-capture"
for unit in "${UNITS[@]}"; do
  install -D -m 0644 "conf/$unit" "$root/usr/lib/systemd/system/$unit"
  sed -i 's|/usr/local/bin/|/usr/bin/|' "$root/usr/lib/systemd/system/$unit"
done
install -D -m 0644 conf/capture.conf "$root/usr/share/doc/bkmeta/capture.conf"
install -D -m 0644 LICENSE "$root/usr/share/doc/bkmeta/copyright"
"$program" --man-pages "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*.1
for shell in bash:bash-completion/completions/bkmeta zsh:zsh/vendor-completions/_bkmeta fish:fish/vendor_completions.d/bkmeta.fish; do
  mkdir -p "$(dirname "$root/usr/share/${shell#*:}")"
  "$program" --completion "${shell%%:*}" >"$root/usr/share/${shell#*:}"
done
# The user that the units name.
add_user='getent passwd bkmeta >/dev/null || useradd --system --home-dir /var/lib/bkmeta --shell /usr/sbin/nologin bkmeta'

deb=$out/bkmeta_${version}_$(dpkg --print-architecture).deb
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: bkmeta
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: bkmeta
Depends: libc6 (>= $(ldd --version | sed -n '1s/.* //p')), zlib1g, passwd
Section: admin
Priority: optional
Description: $DESCRIPTION
 One file without Python: collects bookies' disks, captures and backs up metadata, takes deletes back.
END
printf '#!/bin/sh\nset -e\n%s\n' "$add_user" >"$root/DEBIAN/postinst"
chmod 0755 "$root/DEBIAN/postinst"
# The program is packed with its own compression.
dpkg-deb --root-owner-group -Zgzip -z1 --build "$root" "$deb" >/dev/null
rm -r "$root/DEBIAN"
# Debian's zsh has a folder for what packages bring; others read the common one.
mv "$root/usr/share/zsh/vendor-completions" "$root/usr/share/zsh/site-functions"

cat >"$made/bkmeta.spec" <<END
Name: bkmeta
Version: $version
Release: 1
Summary: $DESCRIPTION
License: Apache-2.0
AutoReqProv: no
Requires(post): /usr/sbin/useradd
%global __os_install_post %{nil}
%global debug_package %{nil}
%description
One file without Python: collects bookies' disks, captures and backs up metadata, takes deletes back.
%install
cp -a $root/. %{buildroot}
%post
$add_user
%files
$(cd "$root" && find . -type f -printf '/%P\n')
END
rpmbuild --quiet -bb --define "_topdir $made/rpm" --define "_rpmdir $out" --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' \
  "$made/bkmeta.spec"
rpm=$(echo "$out"/bkmeta-"$version"-1.*.rpm)

# Both tried: a database of packages in a folder, the scripts left out (they would add a user to this machine).
try() { # FOLDER
  local folder=$1 found
  [ "$("$folder/usr/bin/bkmeta" --version)" = "bkmeta, version $version" ] || die "$folder: the program does not run"
  "$folder/usr/bin/bkmeta" doctor --short
  for command in capture 'backup follow' undelete collect; do
    "$folder/usr/bin/bkmeta" $command --help >/dev/null
    [ -s "$folder/usr/share/man/man1/bkmeta-${command// /-}.1.gz" ] || die "$folder: no page of $command"
  done
  found=$(PATH="$folder/usr/bin:$PATH" bash --norc -ec '. "$0"; COMP_WORDS=(bkmeta und); COMP_CWORD=1
    _bkmeta_completion bkmeta; echo "${COMPREPLY[*]}"' "$folder/usr/share/bash-completion/completions/bkmeta")
  [ "$found" = undelete ] || die "$folder: completion says '$found'"
  for unit in "${UNITS[@]}"; do
    for wanted in $(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$folder/usr/lib/systemd/system/$unit"); do
      [ -x "$folder$wanted" ] || die "$unit runs $wanted, which the package has not"
    done
  done
}
mkdir -p "$made/deb/var/lib/dpkg/info" "$made/deb/var/lib/dpkg/updates" "$made/rpmroot"
touch "$made/deb/var/lib/dpkg/status"
sed 's/^/  /' <(dpkg-deb --info "$deb" | sed -n '/Package:/,$p')
dpkg --root="$made/deb" --log=/dev/null --force-not-root --force-depends --unpack "$deb" >/dev/null
[ -z "$(dpkg --root="$made/deb" --verify bkmeta)" ] || die "$deb: dpkg finds what it installed changed"
try "$made/deb"
rpm --root "$made/rpmroot" --initdb
rpm --root "$made/rpmroot" --noscripts --nodeps --install "$rpm"
rpm --root "$made/rpmroot" --noscripts --nodeps --verify bkmeta || die "$rpm: rpm finds what it installed changed"
try "$made/rpmroot"
say "$(cd "$out" && ls -l bkmeta_* bkmeta-* | awk '{printf "%s: %d MB  ", $9, $5 / 1000000}')"
