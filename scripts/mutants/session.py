"""Tests asked about one change after another by a process that has loaded all of them, once.

A fork of that process gives a function its changed code, and runs the tests that execute the changed lines, quick
ones first. What code outside of functions does is over by then: a process of its own runs the tests of such a change.
"""

import gc
import importlib
import json
import multiprocessing
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TextIO

import pytest

from scripts.mutants.changes import Mutant, hash_text
from scripts.mutants.results import Outcome, Result, hash_asked, hash_test, is_current, load_results, remember

SOME: Final = {
    "BKMETA_SOAK_HISTORIES": "20", "BKMETA_SOAK_NASTY": "12", "BKMETA_SOAK_IMPACT": "60", "BKMETA_SOAK_DECISIONS": "15",
    "BKMETA_SOAK_DELETES": "120",
}  # fmt: skip
"""A part of what `scripts/test` judges: each change is judged by so many histories, or clusters, again."""
_QUIET: Final = (
    *("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-o", "timeout=0", "-m", "not real"),
)
SPOKEN: Final = "mutants.out"
_RUNNING: Final = "mutants.test"
_LINES: Final = "mutants.lines"
"""In the copy of the tree: what tests printed, the test that runs, and what a test executed."""
_LATE: Final = ("pandas", "scipy.optimize")
"""Modules that are loaded where they are first needed."""
_LEAST_S: Final = 4
_LOADING_S: Final = 20
_SLOWER: Final = 5
_WAITING: Final = 2
"""Tests of a change may take so many seconds of CPU, and so many times longer, before they count as not ending, more
where a process has to load them first; by the clock twice that."""
_TOGETHER_S: Final = 3600
"""Seconds of CPU that all tests may take, and one that is watched."""
_OWN: Final = 9
"""A test of the file's own name is asked before others, as if it had noticed so many changes."""
_BYTES: Final = 6 << 30
"""Memory that a change may ask for."""
_COLD: Final = 98
_BROKEN: Final = 97


@dataclass(frozen=True, slots=True)
class Work:
    """What a process tries.

    Attributes:
        folder: a copy of the tree.
        results: where results are remembered.
        tests: folders of tests, or tests.
        watched: files of which is kept which lines each test executes: those of all changes, and others.
        mutants: what may be tried.
        count: changes that are tried, of those that no result is remembered of.
        quick_s: CPU seconds, watched, that the tests of one change may take; the others are not asked.
        again: whether also those with a result are tried.
    """

    folder: str
    results: Path
    tests: Sequence[str]
    watched: Sequence[str]
    mutants: Sequence[Mutant]
    count: int
    quick_s: float
    again: bool


def serve(work: Work, tried: "Synchronized[int]") -> None:
    """Try changes, remember what became of them, and count them; ends the process."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os._exit(_pytest(work.folder, work.tests, _Session(work, tried, out)))


def _pytest(folder: str, tests: Sequence[str], plugin: object) -> int:
    os.chdir(folder)
    sys.path[0:0] = [folder]
    os.environ.update(SOME, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
    with Path(SPOKEN).open("a") as spoken:
        os.dup2(spoken.fileno(), 1)
        os.dup2(spoken.fileno(), 2)
    return int(pytest.main([*_QUIET, *tests], plugins=[plugin]))


class _Steady:
    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        """Let each change be asked the same examples, those of `scripts/test`; Spark's tasks run in this process."""
        from hypothesis import settings  # noqa: PLC0415 - pytest rewrites it when it loads it

        from recovery import spark  # noqa: PLC0415 - that of the copy

        settings.register_profile("mutants", deadline=None, derandomize=True, max_examples=60, database=None)
        settings.load_profile("mutants")
        steady = pytest.MonkeyPatch()
        steady.setattr(spark, "require_spark", lambda *_: None)
        steady.setattr(spark, "session", lambda *_, **__: nullcontext())
        steady.setattr(spark, "over_buckets", _over_buckets)


def _over_buckets(
    _spark: None,
    task: Callable[[range], Mapping[str, Any]],
    ranges: Sequence[range],
    *,
    done: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Any]:
    """Do what Spark would, without it: seconds less for each change."""
    answers = [json.loads(json.dumps(task(buckets))) for buckets in ranges]
    done(len(ranges), len(ranges))
    return answers


class _Cold(_Steady):
    """Runs named tests of what the files are now."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests up to the first that fails; ends the process."""
        by_name = {item.nodeid: item for item in session.items}
        os._exit(_run(session, [by_name[name] for name in self._names if name in by_name]))


def _run_cold(folder: str, tests: Sequence[str], names: Sequence[str], cpu_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    Path(folder, _RUNNING).write_text("")
    os._exit(_pytest(folder, tests, _Cold(names)) or _BROKEN)


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> int:
    """Run tests up to the first that fails; 1 if one did. The name of the one that runs is in a file."""
    for at, item in enumerate(items):
        Path(session.config.rootpath, _RUNNING).write_text(item.nodeid)
        following = items[at + 1] if at + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


@dataclass(frozen=True, slots=True)
class _Test:
    item: pytest.Item
    cpu_s: float
    lines: Mapping[str, frozenset[int]]

    def executed(self, path: str) -> frozenset[int]:
        return self.lines.get(path, frozenset())


class _Session(_Steady):
    def __init__(self, work: Work, tried: "Synchronized[int]", out: TextIO) -> None:
        self._work, self._tried, self._out = work, tried, out
        self._tests: list[_Test] = []
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._noticed: Counter[tuple[str, str, str]] = Counter()

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the changes in place of a run of the tests."""
        folder = self._work.folder
        for path in self._work.watched:
            module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            if module.__file__ != f"{folder}/{path}":
                raise RuntimeError(f"{path} was imported from {module.__file__}, not from the copy")
        # What is loaded late, each fork would load again: that takes longer than most tests.
        for name in _LATE:
            importlib.import_module(name)
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(folder):
                self._functions[_key(each.__code__)].append(each)
        gc.freeze()
        self._watch(session)
        self._try(session)
        return True

    def _watch(self, session: pytest.Session) -> None:
        """Run each test alone, unless it and what it executed are as a run before this one saw them, and keep lines."""
        hashes = {path: hash_text(Path(path).read_bytes()) for path in self._work.watched}
        package = hash_text("\n".join(self._work.watched).encode())
        kept = self._work.results.with_name(f"mutants-lines-{package}.json")
        is_first = not kept.exists()
        known = {} if is_first else json.loads(kept.read_text())
        for item in session.items:
            test = hash_test(item.nodeid)
            seen = known.get(item.nodeid)
            if not seen or seen[0] != test or any(hashes.get(path) != of for path, (of, _) in seen[2].items()):
                most_s = int(min(self._work.quick_s, _TOGETHER_S)) + 1
                code = _forked(partial(_traced, session, item, self._work.watched), most_s)
                if code in (-signal.SIGXCPU, -signal.SIGKILL):
                    self._out.write(f"not asked, for it takes longer: {item.nodeid}\n")
                    continue
                cpu_s, lines = (None, {}) if code else json.loads(Path(_LINES).read_text())
                seen = known[item.nodeid] = [test, cpu_s, {path: [hashes[path], some] for path, some in lines.items()}]
            if seen[1] is None:
                self._out.write(f"not asked, for it fails when it is watched: {item.nodeid}\n")
            else:
                executed = {path: frozenset(some) for path, (_, some) in seen[2].items()}
                self._tests.append(_Test(item, seen[1], executed))
        self._tests.sort(key=lambda test: test.cpu_s)
        # With --quick CPU time is short, and this is as much again.
        is_wanted = is_first and self._work.quick_s >= _TOGETHER_S
        if is_wanted and _forked(partial(_run, session, [test.item for test in self._tests]), _TOGETHER_S):
            raise RuntimeError(f"{Path(_RUNNING).read_text()} fails after others, without a change")
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(known))
        total_s = sum(test.cpu_s for test in self._tests)
        self._out.write(f"{len(self._tests)} tests, {total_s:.0f} s of CPU when they are watched\n")

    def _try(self, session: pytest.Session) -> None:
        known = load_results(self._work.results)
        # What a process of its own has to load costs as much as fifty others.
        for mutant in sorted(self._work.mutants, key=lambda mutant: not mutant.function):
            if self._tried.value >= self._work.count:
                return
            tests = self._asked(mutant)
            asked = hash_asked(test.item.nodeid for test in tests)
            old = known.get((mutant.path, mutant.name))
            if old and is_current(old, mutant) and (old.outcome is not Outcome.SURVIVED or old.asked == asked):
                self._noticed[mutant.path, mutant.function, old.by] += 1
                if not self._work.again:
                    continue
            begin = time.monotonic()
            outcome = self._outcome(session, mutant, tests) if tests else Outcome.SURVIVED
            by = "" if outcome is Outcome.SURVIVED else Path(_RUNNING).read_text()
            took_s = round(time.monotonic() - begin, 2)
            asked = asked if outcome is Outcome.SURVIVED else hash_test(by)
            result = Result(mutant.path, mutant.name, mutant.text, outcome, by, asked, len(tests), took_s)
            remember(self._work.results, result)
            self._noticed[mutant.path, mutant.function, by] += 1
            self._tried.value += 1
            self._out.write(f"{self._tried.value} {outcome} {took_s:.1f} s  {mutant.path}  {mutant.name}\n")

    def _asked(self, mutant: Mutant) -> list[_Test]:
        """Return the tests that execute the change, those first that cost little, are the file's or noticed others."""
        lines, own = range(mutant.lines[0], mutant.lines[1] + 1), f"test_{Path(mutant.path).stem}"
        # What stands outside of functions was executed before any test: all may depend on it.
        tests = [t for t in self._tests if not mutant.function or not t.executed(mutant.path).isdisjoint(lines)]

        def rank(test: _Test) -> tuple[bool, float]:
            noticed = self._noticed[mutant.path, mutant.function, test.item.nodeid]
            promise = 1 + noticed + _OWN * test.item.path.name.startswith(own)
            return not test.executed(mutant.path), test.cpu_s / promise

        tests.sort(key=rank)
        costs = accumulate(test.cpu_s for test in tests)
        return [test for test, cost_s in zip(tests, costs, strict=True) if cost_s <= self._work.quick_s]

    def _outcome(self, session: pytest.Session, mutant: Mutant, tests: Sequence[_Test]) -> Outcome:
        file, items = Path(mutant.path), [test.item for test in tests]
        cpu_s = int(_LEAST_S + _SLOWER * sum(test.cpu_s for test in tests))
        source = file.read_text()
        # Processes that tests start read it from here.
        file.write_text(mutant.source)
        try:
            code: int | None = _COLD
            if mutant.function:
                code = _forked(partial(self._changed, session, mutant, items), cpu_s)
            if code == _COLD:
                names = [item.nodeid for item in items]
                context = multiprocessing.get_context("spawn")
                cpu_s += _LOADING_S
                process = context.Process(target=_run_cold, args=(self._work.folder, self._work.tests, names, cpu_s))
                process.start()
                if not _ended(process.sentinel, process.pid or 0, cpu_s):
                    process.kill()
                process.join()
                code = process.exitcode
        finally:
            file.write_text(source)
        if code == _BROKEN:
            raise RuntimeError(f"{mutant.name} could not be tried: {Path(SPOKEN).read_text()[-2000:]}")
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return Outcome.ENDLESS
        return Outcome.NOTICED if code else Outcome.SURVIVED

    def _changed(self, session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item]) -> int:
        """Give the function its changed code, and run tests; `_COLD`: that cannot be done while it is loaded."""
        path = f"{self._work.folder}/{mutant.path}"
        module = compile(mutant.source, path, "exec", dont_inherit=True)
        wanted = (path, mutant.function, mutant.first_line)
        outer = next((code for code in _codes(module) if _key(code) == wanted), None)
        if outer is None or wanted not in self._functions:
            return _COLD
        try:
            for code in _codes(outer):
                for function in self._functions.get(_key(code), ()):
                    function.__code__ = code
        except ValueError:  # it needs other variables of what stands around it
            return _COLD
        try:
            return _run(session, items)
        except BaseException:  # noqa: BLE001 - whatever it breaks is noticed
            traceback.print_exc()
            return 1


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _traced(session: pytest.Session, item: pytest.Item, watched: Sequence[str]) -> int:
    files = {f"{session.config.rootpath}/{path}": path for path in watched}
    lines: dict[str, set[int]] = defaultdict(set)

    def enter(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        return step if frame.f_code.co_filename in files else None

    def step(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            lines[files[frame.f_code.co_filename]].add(frame.f_lineno)
        return step

    threading.settrace(enter)
    sys.settrace(enter)
    code = _run(session, [item])
    sys.settrace(None)
    found = {path: sorted(some) for path, some in lines.items()}
    Path(session.config.rootpath, _LINES).write_text(json.dumps([time.process_time(), found]))
    return code


def _forked(act: Callable[[], int], cpu_s: int) -> int:
    """Return what an act in a fork ends with; the negative number of a signal that ended it."""
    scratch = tempfile.mkdtemp(dir=Path.cwd())
    pid = os.fork()
    if not pid:
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            os.environ["TMPDIR"] = tempfile.tempdir = scratch
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
            resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
            code = act()
        except BaseException:  # noqa: BLE001 - the fork must end here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    handle = os.pidfd_open(pid)
    if not _ended(handle, pid, cpu_s):
        os.kill(pid, signal.SIGKILL)
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # processes that tests left
    shutil.rmtree(scratch, ignore_errors=True)
    return code


def _ended(handle: int, pid: int, cpu_s: int) -> bool:
    """Wait for a process; say whether it ended in time. Where others have the processors its time stands still."""
    begin, lost_s = time.monotonic(), 0.0
    while (left_s := _WAITING * cpu_s + lost_s - (time.monotonic() - begin)) > 0:
        if select.select([handle], [], [], min(left_s, _LEAST_S))[0]:
            return True
        with suppress(FileNotFoundError, ProcessLookupError):
            lost_s = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return False
