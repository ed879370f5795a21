"""The only room that knows Spark: a session, and pure functions carried over bucket ranges.

A task is a bucket range: it opens the same range of every dataset, so nothing is shuffled, and writes its results as
part files of its own. Only one small JSON object a task comes back to the driver.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recovery.errors import DatasetError, DiskError, InputError, SparkError
from recovery.process_scope import defer_signals, keep_process_state

if TYPE_CHECKING:  # for others' annotations, too: nothing else names PySpark
    from pyspark import SparkConf
    from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414 - given on
    from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414 - given on

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("recovery", "reconcile", "backends")
"""Below `_ROOT`: what a task may import of this program."""
_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of the driver's JVM, which hands tasks out and gathers small answers: Java's second compiler would gain nothing."""
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2-quiet.properties")
_OURS: Final = {
    "spark.app.name": "bkmeta",
    "spark.pyspark.driver.python": sys.executable,
    "spark.driver.memory": "2g",  # the tasks' data is in their Python processes, not there
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS} {_JAVA_OPTIONS}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_ALONE: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""On this host alone, without executors."""
_PROPERTY: Final = re.compile(r"^\s*(spark\.[\w.-]+)[\s=:]+(\S.*?)\s*$", re.MULTILINE)
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a program that `spark-submit` started."""
_JAVA: Final[list[Any]] = []
"""The way to the Java process of this process, once there is one."""
_PROGRAM: Final = "bkmeta.zip"
_OLDEST_JAVA: Final = 17
_BROKEN: Final = "dataset error"
_HERE: Final = "local[*]"
"""The master of a session on this host alone."""
_INSTALL: Final = "install the extra: pip install 'bkmeta[spark]'"
_RUN_AGAIN: Final = "run it again, into the same folder: what was begun there is cleared first"
_MISSING_MODULE: Final = re.compile(
    r"No module named '[^']+'|(?<=PYTHON_VERSION_MISMATCH\] )[^\n.]*|(?<=NOT_INSTALLED\] )[^\n.]*"
)
"""What PySpark says about executors whose Python is another, or has not what a task needs."""
_EQUIP: Final = "give them what is here, or send an environment along; `bkmeta doctor` compares both and says how"
_MOST_LINES: Final = 3
_MOST_CHARACTERS: Final = 300


def find_java() -> str | None:
    """Return the Java that Spark runs: that of JAVA_HOME, else the first on the PATH; None: nothing names one."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_problem() -> str | None:
    """Return why Spark would not find a Java that it can use; None where it would."""
    java, home = find_java(), os.environ.get("JAVA_HOME")
    if java is None or not Path(java).exists():
        return f"no Java found ({'JAVA_HOME=' + home if home else 'nothing called java on the PATH'})"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run ({error})"
    words = answer.stderr.split('"')
    major = words[1].split(".")[0] if len(words) > 1 else ""
    if major.isdigit() and int(major) < _OLDEST_JAVA:
        return f"{java} is Java {words[1]}; Spark needs {_OLDEST_JAVA} or newer"
    return None


def has_executors(master: str) -> bool:
    """Whether a master runs executors: processes of their own, mostly on other machines."""
    return master != "local" and not master.startswith("local[")


@contextmanager
def session(
    master: str | None = None, *, python: Path | None = None, settings: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Give a Spark session and end it afterwards. Executors get this program, as a zip, and import it from there.

    A session that this process has already, as a notebook has, is given as it is, and goes on afterwards. Spark's own
    settings (`spark-defaults.conf`, the options of `spark-submit`) count before those that this program would choose.

    A service may live in this process: the environment, the search path of modules, the handlers of signals and stderr
    are what they were as soon as the session stands.

    Args:
        master: as `spark-submit --master` takes it; None: that of Spark's own settings, and without one this host.
        python: a file that executors get, too, and run as their Python: a packed environment, of PEX for example.
            None: that of Spark's own settings or of PYSPARK_PYTHON, else this process's, at the same place.
        settings: Spark properties that win over all others.

    Raises:
        InputError: no pyspark, no Java that it can use, a master that does not answer, or a file that is of no use.
    """
    require_spark(master, python)
    running = _find_running()
    if running is not None:
        if has_executors(running.sparkContext.master or _HERE):
            _ship(running, python)
        yield running
        return
    with defer_signals() as release_signals:
        spark = _start(master, python, settings or {})
        try:
            release_signals()
            yield spark
        finally:
            _stop(spark)


def _find_running() -> "SparkSession | None":
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415 - not installed on bookies, and slow to load
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InputError("PySpark", f"is not whole ({error})", _INSTALL) from error
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _start(master: str | None, python: Path | None, settings: Mapping[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as in _find_running
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - as in _find_running
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as in _find_running
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as in _find_running

    with tempfile.TemporaryDirectory(prefix="bkmeta-spark-") as folder, keep_process_state():
        output = Path(folder) / "stderr.log"
        try:
            defaults = _ask_submitted() if _SUBMITTED in os.environ else _read_defaults()
            master = master or defaults.get("spark.master", _HERE)
            executors = has_executors(master)
            interpreter = defaults.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
            interpreter = f"./{python.name}" if python else interpreter if executors else sys.executable
            # It is Spark that brings PySpark, by PYTHONPATH.
            packed = {} if python is None else {"spark.executorEnv.PEX_INHERIT_PATH": "fallback"}
            proposed = {**_OURS, **({} if executors else _ALONE), **packed}
            named = {"spark.master": master, "spark.pyspark.python": interpreter, **settings}
            conf = SparkConf().setAll(
                [*{k: v for k, v in proposed.items() if k not in defaults}.items(), *named.items()]
            )
            os.environ["PYSPARK_PYTHON"] = interpreter
            os.environ.setdefault("SPARK_LAUNCHER_OPTS", _JAVA_OPTIONS)
            if not executors:
                # Else Java looks this host's name up, which in a container nothing may know.
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
                # Workers inherit the environment: they must find these packages when run from a checkout, too.
                path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
                os.environ["PYTHONPATH"] = path
            SparkContext(conf=conf, gateway=_start_java(conf, output))
            spark = SparkSession.builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as error:
            log_text = output.read_text(errors="replace") if output.exists() else ""
            reason = _shorten(log_text) or _shorten(str(error))
            raise InputError("Spark", f"does not start with master {master!r}", f"it said: {reason}") from error
    try:
        if executors:
            _ship(spark, python)
    except BaseException:
        _stop(spark)
        raise
    return spark


def _read_defaults() -> dict[str, str]:
    """Return what the file of this host's Spark says, by the name of the property; Spark reads it itself, too."""
    import pyspark  # noqa: PLC0415 - as in _find_running

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    try:
        return dict(_PROPERTY.findall(path.read_text(errors="replace")))
    except OSError:
        return {}


def _ask_submitted() -> dict[str, str]:
    """Return the properties of the Java process of `spark-submit`, which started this one."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as in _find_running

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call] # PySpark has no types here
    pairs = gateway.jvm.org.apache.spark.SparkConf().getAll()
    return {pair.productElement(0): pair.productElement(1) for pair in pairs}


def _start_java(conf: "SparkConf", output: Path) -> Any:  # noqa: ANN401 - PySpark has no types here
    """Return the way to a Java process that writes its warnings, which are not for our users, into a file.

    It stays with this process: a second session uses that of the first.
    """
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - as in _find_running

    if not _JAVA:
        with output.open("wb") as log:
            _JAVA.append(launch_gateway(conf, {"stderr": log}))  # type: ignore[no-untyped-call] # as above
    return _JAVA[0]


def _stop(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as in _find_running
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as in _find_running

    # A session whose Java process is gone cannot be stopped; what misses it reports why it is gone.
    with warnings.catch_warnings(), suppress(PySparkException, Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


def _ship(spark: "SparkSession", python: Path | None) -> None:
    """Give executors this program, and what they are to run it with."""
    spark.sparkContext.addPyFile(str(Path(_pack_program().name) / _PROGRAM))
    if python is not None:
        spark.sparkContext.addFile(str(python))


@cache
def _pack_program() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with this program as a zip. It stays as long as this process does."""
    folder = tempfile.TemporaryDirectory(prefix="bkmeta-spark-")
    with zipfile.ZipFile(Path(folder.name) / _PROGRAM, "w") as packed:
        for name in _PACKAGES:
            for source in sorted((_ROOT / name).rglob("*.py")):
                packed.write(source, source.relative_to(_ROOT))
    return folder


def require_spark(master: str | None, python: Path | None) -> None:
    """Demand that a session can be started, without starting one. Arguments are those of `session`.

    Raises:
        InputError: no pyspark, no Java that it can use, or a file that is of no use to executors.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise InputError("this command", "needs PySpark", _INSTALL)
    problem = java_problem()
    if problem:
        raise InputError("Spark", problem, "install Java 17 or newer, or point JAVA_HOME to it")
    if python is not None and master is not None and not has_executors(master):
        problem = f"is for executors, and master {master!r} has none"
        raise InputError(str(python), problem, "leave it out, or name a master that has: spark://, yarn, k8s://")
    if python is not None and not (python.is_file() and os.access(python, os.X_OK)):
        raise InputError(str(python), "is not a file that can be run", "name a packed environment: scripts/pack FILE")


def _shorten(text: str) -> str:
    """Return what of a log or a message is for people: its last lines that are not of a stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "... ", "Driver stacktrace", "Caused by"))]
    return " / ".join(lines[-_MOST_LINES:])[:_MOST_CHARACTERS]


def over_buckets(
    spark: "SparkSession | None",
    task: Callable[[range], Mapping[str, Any]],
    ranges: Sequence[range],
    *,
    done: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[dict[str, Any]]:
    """Run a task for each bucket range and return the answer of each, in the order of the ranges.

    Args:
        spark: the session; None: this process.
        task: a picklable pure function of its range; what it returns must be small, and JSON. It may run more than once
            for a range (Spark repeats what failed), so what it writes must replace what an earlier try wrote.
        ranges: one task each.
        done: called with how many of how many have ended, now and then.

    Raises:
        DatasetError: the first that a task raised.
        SparkError: Spark itself failed, or its Java process ended.
    """
    if spark is None:
        return _run_here(task, ranges, done)
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - as in _find_running
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415 - as in _find_running
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - as in _find_running

    edges = [(r.start, r.stop) for r in ranges]

    def run(number: int) -> str:
        low, high = edges[number]
        try:
            return json.dumps(task(range(low, high)))
        except DatasetError as error:
            return json.dumps({_BROKEN: [type(error).__name__, error.path, error.problem, error.remedy]})

    done(0, len(edges))
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, ended, done, len(edges)), daemon=True)
    watcher.start()
    try:
        # Not by `mapInArrow`: PySpark demands pandas for it, which a row and a text a task have no use for.
        with warnings.catch_warnings():
            # From Spark 4.3 on it first tries to translate the function, and warns where its Java process has ended.
            warnings.filterwarnings("ignore", message=".*transpil", category=UserWarning)
            answer = udf(run, "string", useArrow=False).asNondeterministic()(col("id"))
        frame = spark.range(0, len(edges), 1, len(edges)).select(col("id").alias("range"), answer.alias("answer"))
        answers = {row["range"]: json.loads(row["answer"]) for row in frame.collect()}
    except PythonException as error:
        missing = _MISSING_MODULE.search(str(error))
        if missing is None:
            raise  # a bug in a task keeps its traceback
        raise SparkError(f"executors cannot run this program ({missing[0]})", _EQUIP) from error
    except (PySparkException, Py4JJavaError) as error:
        raise SparkError(_shorten(str(error).partition("Driver stacktrace")[0]), _RUN_AGAIN) from error
    except (Py4JError, OSError, EOFError) as error:
        raise SparkError("its Java process ended", _RUN_AGAIN) from error
    finally:
        ended.set()
        watcher.join()
    if len(answers) < len(edges):  # PySpark takes a Java process that ends for the end of the answers
        raise SparkError("its Java process ended", _RUN_AGAIN)
    done(len(edges), len(edges))
    for answer in answers.values():
        if _BROKEN in answer:
            kind, *facts = answer[_BROKEN]
            raise (DiskError if kind == DiskError.__name__ else DatasetError)(*facts)
    return [answers[index] for index in range(len(edges))]


def _run_here(
    task: Callable[[range], Mapping[str, Any]], ranges: Sequence[range], done: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    answers = []
    for number, buckets in enumerate(ranges):
        done(number, len(ranges))
        # As Spark gives them back.
        answers.append(dict(json.loads(json.dumps(task(buckets)))))
    done(len(ranges), len(ranges))
    return answers


def count_parallel(spark: "SparkSession | None") -> int:
    """Return how many tasks run at the same time."""
    return 1 if spark is None else max(1, spark.sparkContext.defaultParallelism)


def _watch(spark: "SparkSession", ended: threading.Event, done: Callable[[int, int], None], tasks: int) -> None:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as in _find_running

    with suppress(Py4JError, OSError):  # the job reports that Spark is gone
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(0.5):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done(sum(stage.numCompletedTasks for stage in stages if stage), tasks)
