#!/usr/bin/env bash
# Tests with another version of a package than uv.lock names:  scripts/soak with REQUIREMENT...
#
#     scripts/soak with 'pyspark==4.0.*'      sessions, executors, a real cluster of two workers; Java is the one on PATH
#     scripts/soak with 'protobuf==5.29.*'    etcd's client, the service's gRPC, records, the wire
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh

declare -A tests=(
  [pyspark]="tests/recovery/test_spark.py tests/recovery/test_spark_executors.py tests/real/test_spark_cluster.py"
  [protobuf]="tests/backends/etcd tests/backends/bookie tests/recovery/codecs/test_ledger_metadata.py tests/reconcile/service/test_server_etcd.py"
)
unset "${!PYTHON@}"
[ $# -gt 0 ] || die "scripts/soak with REQUIREMENT..., as in  scripts/soak with 'pyspark==4.0.*'; it knows ${!tests[*]}"
want_python
want_java
install_wanted
check_java
sync_python
work=$(mktemp -d "$PWD/.cache/with.XXXXXX")
trap 'rm -rf "$work"' EXIT
for wanted in "$@"; do
  package=${wanted%%[=<>~!]*}
  [ -n "${tests[$package]:-}" ] || die "$wanted: scripts/soak with knows ${!tests[*]}"
  UV_PROJECT_ENVIRONMENT=$work/env uv sync -q --frozen --all-extras
  uv pip install -q --python "$work/env/bin/python" "$wanted"
  say "$(uv pip freeze --python "$work/env/bin/python" | grep "^$package=="), Java $(java_major)"
  # shellcheck disable=SC2086
  PATH="$work/env/bin:$PATH" "$work/env/bin/python" -m pytest -q -p no:cacheprovider ${tests[$package]}
  rm -rf "$work/env"
done
