#!/usr/bin/env bash
# Sessions and a real cluster of two workers, with another Spark than uv.lock names:  scripts/soak spark VERSION...
#
# VERSION is pip's: 4.0.*, 4.1.2. Java is the one on PATH; JAVA_HOME names another.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_setup.sh

unset "${!PYTHON@}"
[ $# -gt 0 ] || die "scripts/soak spark VERSION..., as in  scripts/soak spark '4.0.*'"
want_python
want_java
install_wanted
check_java
sync_python
work=$(mktemp -d "$PWD/.cache/sparks.XXXXXX")
trap 'rm -rf "$work"' EXIT
for version in "$@"; do
  UV_PROJECT_ENVIRONMENT=$work/env uv sync -q --frozen --all-extras
  uv pip install -q --python "$work/env/bin/python" "pyspark==$version"
  say "Spark $("$work/env/bin/python" -c 'import pyspark; print(pyspark.__version__)'), Java $(java_major)"
  PATH="$work/env/bin:$PATH" "$work/env/bin/python" -m pytest -q -p no:cacheprovider tests/recovery/test_spark.py \
    tests/recovery/test_spark_executors.py tests/real/test_spark_cluster.py
  rm -rf "$work/env"
done
