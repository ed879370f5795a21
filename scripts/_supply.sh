#!/usr/bin/env bash
# What bkmeta is made of, and whether that may be published:  scripts/soak supply [FOLDER]
#
# Writes into FOLDER (.cache/supply, where none is named) the wheel and the source distribution, each built twice with the same bytes, their
# hashes, and a list of all dependencies (bkmeta.cdx.json, CycloneDX). Checks the dependencies' licences, and asks for
# known faults of theirs where the index of packages answers that.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh

# What may be brought along with Apache-2.0, in the words of https://spdx.org/licenses and of packages that are older than these.
readonly allowed='Apache-2.0;Apache Software License;MIT;MIT License;MIT-0;BSD License;BSD-2-Clause;BSD-3-Clause;3-Clause BSD License;0BSD;Zlib;CC0-1.0;PSF-2.0;ISC'

unset "${!PYTHON@}"
want_python
install_wanted
sync_python
out=${1:-.cache/supply}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/bkmeta-*
for folder in "$out" "$work/again"; do uv build -q --out-dir "$folder"; done
for built in "$out"/bkmeta-*; do
  cmp "$built" "$work/again/${built##*/}" || die "${built##*/}: built twice, it is not the same"
done
rm -f "$out/.gitignore"
(cd "$out" && sha256sum bkmeta-*.whl bkmeta-*.tar.gz | tee SHA256SUMS)
uv export -q --frozen --no-dev --all-extras --format cyclonedx1.5 --preview-features sbom-export -o "$out/bkmeta.cdx.json" >/dev/null
say "$(.venv/bin/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]), "components in", sys.argv[1])' "$out/bkmeta.cdx.json")"

uv export -q --frozen --no-dev --all-extras --no-emit-project --no-hashes -o "$work/names" >/dev/null
mapfile -t names < <(sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/\1/p' "$work/names")
uv tool run -q pip-licenses --python .venv/bin/python --from=mixed --partial-match --allow-only="$allowed" --packages "${names[@]}" >"$work/licences" ||
  die "a licence that is not in the list of scripts/_supply.sh: $(tail -n 1 "$work/licences")"
say "licences of $(($(wc -l <"$work/licences") - 1)) packages: all of the list"

if uv tool run -q pip-audit -r "$work/names" --no-deps --disable-pip --strict >"$work/faults" 2>"$work/said"; then
  say "known faults: none"
elif grep -q 'could not be audited\|not found on PyPI' "$work/said" "$work/faults" || ! grep -q '^Name' "$work/faults"; then
  say "known faults: could not be asked for: this index of packages does not answer it ($(tail -n 1 "$work/said"))"
else
  cat "$work/faults" >&2
  die "known faults of dependencies"
fi
