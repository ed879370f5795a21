"""A session changes nothing of the process that it is started in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import command

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


WORKERS: Final = """
import threading
from recovery.spark import over_buckets, session

def name_places(buckets):
    import py4j, pyspark
    return {"pyspark": pyspark.__file__}

with session("local[2]"):  # the thread of PySpark's way to its Java process stays
    before = {*threading.enumerate()}
before |= {*threading.enumerate()}
with session("local[2]") as spark:
    answers = over_buckets(spark, name_places, [range(1), range(1, 2)])
    begun = {*threading.enumerate()} - before
begun |= {*threading.enumerate()} - before
assert begun
for thread in begun:
    thread.join(30)
assert not [thread for thread in begun if thread.is_alive()]
import pyspark
assert [answer["pyspark"] for answer in answers] == [pyspark.__file__] * 2, answers
"""


def test_workers_run_the_installed_pyspark_and_no_thread_stays() -> None:
    """Of a zip no bytecode is kept; who ends a session waits for none of its threads, and still they end."""
    done = subprocess.run(
        [sys.executable, "-c", WORKERS], cwd=command.ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr


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
