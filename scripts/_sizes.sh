#!/usr/bin/env bash
# Installs the wheel alone and with each extra into fresh environments, and prints what each takes: scripts/soak sizes
# Fails where the bare one takes more than MOST megabytes, or has a package that only an extra brings.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh
MOST=${MOST:-280}
want_python
install_wanted
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
uv build -q --wheel --out-dir "$made"
wheel=$(echo "$made"/bkmeta-*.whl)

measure() { # NAME WHAT
  uv venv -q --python 3.11 "$made/$1"
  UV_LINK_MODE=copy uv pip install -q --python "$made/$1/bin/python" "$2"
  local folder
  folder=$(echo "$made/$1"/lib/python3*/site-packages)
  printf '%-12s %4d MB\n' "$1" "$(du -sm "$folder" | cut -f1)"
  du -sm "$folder"/*/ | sort -rn | head -6 | while read -r size path; do printf '  %4d  %s\n' "$size" "$(basename "$path")"; done
}

measure bare "$wheel"
folder=$(echo "$made"/bare/lib/python3*/site-packages)
for absent in pandas scipy pyspark; do
  [ ! -e "$folder/$absent" ] || die "$absent is installed without an extra"
done
[ "$(du -sm "$folder" | cut -f1)" -le "$MOST" ] || die "the bare installation takes more than $MOST MB"
"$made/bare/bin/bkmeta" doctor --short
for extra in ${EXTRAS-service signatures spark}; do measure "$extra" "$wheel[$extra]"; done
