#!/usr/bin/env bash
# The pages' ways to install, each tried by the demo:  scripts/soak newcomer [tool|file|image]...     all, where none is named
#
#     tool     uv tool install of the wheel; then the notebook about the demo's kind of plan, and the service with its figures
#     file     the program in one file for what it has, the tool for the rest
#     image    what conf/Containerfile builds, run by buildah; as root
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh

unset "${!PYTHON@}"
want_python
want_java
install_wanted
check_java
sync_python
[ $# -gt 0 ] || set -- tool file image
work=$(mktemp -d "$PWD/.cache/newcomer.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

install_tool() {
  [ -x "$work/bin/bkmeta" ] && return
  uv build -q --wheel --out-dir "$work/wheel"
  UV_TOOL_DIR=$work/tools UV_TOOL_BIN_DIR=$work/bin uv tool install -q \
    "bkmeta[spark,service,signatures] @ file://$(echo "$work"/wheel/*.whl)"
}

for way in "$@"; do
  say "== $way"
  case $way in
    tool)
      install_tool
      .venv/bin/python -m scripts.newcomer demo "$work/bin/bkmeta" | tail -n 16
      .venv/bin/python -m scripts.newcomer service "$work/bin/bkmeta"
      .venv/bin/python -m pytest -q -p no:cacheprovider tests/reconcile/library -k notebook
      ;;
    file)
      install_tool
      scripts/pack collect "$work/bin/one-file"
      cat >"$work/bin/bkmeta-file" <<END
#!/usr/bin/env bash
if [ "\$1" != freeze ] && "$work/bin/one-file" "\$1" --help >/dev/null 2>&1; then exec "$work/bin/one-file" "\$@"; fi
exec "$work/bin/bkmeta" "\$@"
END
      chmod +x "$work/bin/bkmeta-file"
      .venv/bin/python -m scripts.newcomer demo "$work/bin/bkmeta-file" | tail -n 16
      ;;
    image) scripts/_image.sh demo ;;
    *) die "scripts/soak newcomer [tool|file|image]..." ;;
  esac
done
