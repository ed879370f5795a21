#!/usr/bin/env bash
# What is published, by each Python that it says it runs with:  scripts/soak pythons [VERSION...]
# A Python that is named must be on this machine; where none is named, those that are not are left out.
#
# The source distribution is built, the wheel from that alone. Each Python gets an environment with the wheel and its
# extras from nothing but the packages' index, starts each command, and runs the fast tests of this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh

unset "${!PYTHON@}"
want_python
install_wanted
sync_python
work=$(mktemp -d "$PWD/.cache/pythons.XXXXXX")
trap 'rm -rf "$work"' EXIT
uv build -q --sdist --out-dir "$work/source"
mkdir "$work/unpacked"
tar -xzf "$work"/source/*.tar.gz -C "$work/unpacked" --strip-components 1
uv build -q --wheel --out-dir "$work/wheel" "$work/unpacked"
wheel=$(echo "$work"/wheel/*.whl)
status=0
named=$#
if [ $# = 0 ]; then set -- 3.11 3.12 3.13 3.14; fi
for version in "$@"; do
  if ! python=$(uv python find "$version" 2>/dev/null); then
    [ "$named" = 0 ] || die "$version: no such Python on this machine"
    say "$version: no such Python on this machine: not tried"
    continue
  fi
  say "$version: $("$python" --version)"
  uv venv -q --python "$python" "$work/$version"
  # In the background: behind || or if, bash goes on after a command that fails.
  (
    cd "$work"
    uv pip install -q --python "$version/bin/python" "$wheel[spark,service,signatures]"
    "$version/bin/bkmeta" doctor --spark --short
    "$version/bin/bkmeta" --help | awk '/^Commands:/ {on = 1; next} on && /^  [a-z]/ {print $1}' | while read -r name; do
      "$version/bin/bkmeta" "$name" --help >/dev/null
    done
    UV_PROJECT_ENVIRONMENT=$work/$version-dev
    export UV_PROJECT_ENVIRONMENT
    cd ..
    uv sync -q --project .. --frozen --all-extras --python "$python"
    cd ..
    "$work/$version-dev/bin/python" -m pytest -q -n 2 --dist loadscope --hypothesis-profile fast -p no:cacheprovider \
      -m "not real and not spark" | tail -n 15
  ) &
  wait $! || { status=1 && say "$version: failed"; }
  rm -rf "${work:?}/$version" "$work/$version-dev"
done
exit $status
