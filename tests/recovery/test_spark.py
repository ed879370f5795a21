"""A session changes nothing of the process that it is started in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.support import command
from tests.support.spark_classes import BRIEF

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM: Final = """
import json, os, signal, sys, threading
from recovery.spark import session

def state():
    handlers = [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    return [dict(os.environ), list(sys.path), handlers, os.fstat(2).st_ino]

ended = threading.Event()
before = state()
with open(sys.argv[1], "wb") as log:
    os.dup2(log.fileno(), 2)
before[3] = os.fstat(2).st_ino
states, files = [], set()

def watch():
    while not ended.wait(0.01):
        files.add(os.fstat(2).st_ino)

watcher = threading.Thread(target=watch)
watcher.start()
for _ in range(2):
    with session("local[1]", settings={"spark.sql.shuffle.partitions": "1"}) as spark:
        states.append(state())
        count = spark.range(3).count()
    states.append(state())
ended.set()
watcher.join()
print(json.dumps([count, [later == before for later in states], files == {before[3]}]))
"""


OF_USERS: Final = """
import json
from pyspark.sql import SparkSession
from recovery.spark import over_buckets, session

KEYS = ("spark.app.name", "spark.driver.memory", "spark.ui.showConsoleProgress")

def look(spark):
    context = spark.sparkContext
    return [context.master, *map(context.getConf().get, KEYS), context.getSystemProperty("is.theirs")]

def count(buckets):
    return {"count": len(buckets)}

with session() as spark:
    by_file = look(spark)
with session("local[1]", settings={"spark.app.name": "given"}) as spark:
    given = look(spark)
theirs = SparkSession.builder.appName("notebook").master("local[2]").getOrCreate()
with session("local[1]") as spark:
    same = spark is theirs
    answers = over_buckets(spark, count, [range(2), range(2, 5)])
print(json.dumps([by_file, given, same, answers, theirs.range(7).count(), look(theirs)[:2]]))
theirs.stop()
"""

SUBMITTED: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from recovery.spark import over_buckets, session

def count(buckets):
    return {"count": len(buckets)}

with session() as spark:
    conf = spark.sparkContext.getConf()
    print(conf.get("spark.master"), conf.get("spark.app.name"), conf.get("spark.submit.deployMode"))
    print(conf.get("spark.ui.enabled"), over_buckets(spark, count, [range(2), range(2, 5)]))
"""


def test_settings_and_sessions_of_users_count(tmp_path: Path) -> None:
    """Spark's own settings win over ours, a caller's over both; a session that runs is used, and goes on."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# a cluster's settings\n"
        "spark.master  local[3]\n"
        "spark.driver.memory=640m\n"
        "spark.driver.extraJavaOptions -Dis.theirs=yes -XX:TieredStopAtLevel=1\n"
        "spark.app.name\ttheirs\n"
    )
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OF_USERS], cwd=command.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    by_file, given, *running = json.loads(done.stdout)
    assert by_file == ["local[3]", "theirs", "640m", "false", "yes"]
    assert given == ["local[1]", "given", "640m", "false", "yes"]
    assert running == [True, [{"count": 2}, {"count": 3}], 7, ["local[2]", "notebook"]]


def test_a_program_that_spark_submit_started_has_its_settings(tmp_path: Path) -> None:
    """The master, and what else was given to `spark-submit`, wins over ours."""
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ("--master", "local[3]", "--name", "theirs", "--conf", "spark.ui.enabled=false")
    words: list[str | Path] = [submit, *options, program, command.ROOT]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": BRIEF}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "local[3] theirs client\nfalse [{'count': 2}, {'count': 3}]\n"


def test_a_session_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    """Environment, search path, handlers and stderr are the same in a session, after it, and while it starts.

    It starts where nothing knows the host's name, as in some containers.
    """
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    elsewhere = ["unshare", *as_root, "--uts", "sh", "-ec", 'hostname nobody-knows-this; exec "$@"', "sh"]
    done = subprocess.run(
        [*elsewhere, sys.executable, "-c", PROGRAM, tmp_path / "stderr"],
        cwd=command.ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert json.loads(done.stdout) == [3, [True] * 4, True]


def test_spark_needs_neither_pandas_nor_scipy(tmp_path: Path) -> None:
    """Where neither can be imported, by the driver or by its workers, tasks run all the same."""
    for name in ("pandas", "scipy"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name} here', name={name!r})\n")
    code = (
        "import pyarrow as pa\n"
        "from recovery.spark import over_buckets, session\n"
        "def task(buckets):\n"
        "    try:\n"
        "        import scipy\n"
        "    except ModuleNotFoundError as error:\n"
        "        return {'sum': sum(pa.array(buckets).to_pylist()), 'missing': error.name}\n"
        "    return {}\n"
        "with session('local[2]') as spark:\n"
        "    print(over_buckets(spark, task, [range(0, 3), range(3, 5)]))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(command.ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[{'sum': 3, 'missing': 'scipy'}, {'sum': 7, 'missing': 'scipy'}]\n"
