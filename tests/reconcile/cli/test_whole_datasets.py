"""A command that is stopped says whether its dataset is whole, and that is so; two never write into one folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from recovery import dataset as datasets
from recovery.dataset import MANIFEST, open_dataset
from tests.simulation.bookie_dir import INSTANCE, make_bookie
from tests.support.command import environment, run
from tests.support.inventories import write_inventory
from tests.support.paths import DATA

WHOLE = "is whole and can be used"
NOT_YET = "run the same command again"
RECOVERING: Final = """
import sys
from reconcile.cli.main import main
from reconcile.jobs.make_plan import range_task
real = range_task.plan_range
def wait(*arguments):
    print("begun", flush=True)
    sys.stdin.read()
    return real(*arguments)
range_task.plan_range = wait
main(sys.argv[1:])
"""
"""A recover that waits in the middle of its work until its input ends."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Signals are handled afterwards as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stop_after(real: Callable[..., Any], number: signal.Signals) -> Callable[..., Any]:
    """Return a function that ends by a signal to this process."""

    def stopped(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        os.kill(os.getpid(), number)
        return result

    return stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("recovery.dataset.write_part", NOT_YET),
        ("recovery.dataset.write_manifest", WHOLE),
        ("reconcile.report.pages.inventory_page", WHOLE),
        ("reconcile.report.pages.write_page", WHOLE),
    ],
)
def test_a_stopped_collection_says_whether_its_inventory_is_whole(
    place: str,
    words: str,
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Behind its manifest it is: then it is read like any other, and the same command would be refused."""
    made = make_bookie(tmp_path / "bookie", {5: [0, 1, 2]})
    folders = [word for folder in made.ledger_dirs for word in ("--ledger-dir", folder)]
    folders += [word for folder in made.journal_dirs for word in ("--journal-dir", folder)]
    out = tmp_path / "inventory"
    module, _, name = place.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)
    with monkeypatch.context() as patched:
        patched.setattr(place, stop_after(real, number))
        done = run(capsys, "collect", *folders, "--out", out)
    assert done.code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    (last,) = done.err.splitlines()[-1:]
    assert last.startswith("bkmeta: stopped before the end; ")
    assert [said in last for said in (WHOLE, NOT_YET)] == [words is WHOLE, words is NOT_YET]
    assert (out / MANIFEST).exists() is (words is WHOLE)
    again = run(capsys, "collect", *folders, "--out", out)
    if words is WHOLE:
        open_dataset(out, "inventory").verify()
        assert again.code == 2
    else:
        assert again.code == 0


@pytest.mark.parametrize(("place", "words"), [("write_part", NOT_YET), ("write_manifest", WHOLE)])
def test_a_stopped_capture_says_whether_its_catalog_is_whole(
    place: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a collection does."""
    store = f"zkfiles://{DATA / 'zookeeper' / 'v39-plain'}?root=/app&layout=flat"
    monkeypatch.setattr(datasets, place, stop_after(getattr(datasets, place), signal.SIGTERM))
    done = run(capsys, "capture", "--metadata", store, "--out", tmp_path / "c")
    assert done.code == 143
    assert words in done.err.splitlines()[-1]
    assert (tmp_path / "c" / MANIFEST).exists() is (words is WHOLE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_that_a_library_swallows_is_a_stop(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails then fails by the signal, as PySpark does where its Java process got it, too: no fault is reported."""

    def swallow(*_: Any, **__: Any) -> None:
        with suppress(BaseException):
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 0)
        raise KeyError(0)

    made = make_bookie(tmp_path / "bookie", {5: [0, 1, 2]})
    monkeypatch.setattr("recovery.dataset.write_manifest", swallow)
    folders = ["--ledger-dir", made.ledger_dirs[0], "--journal-dir", made.journal_dirs[0]]
    done = run(capsys, "collect", *folders, "--out", tmp_path / "inventory")
    assert done.code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert done.err.splitlines()[-1].startswith("bkmeta: stopped before the end")
    assert "fault of this program" not in done.err


def test_of_two_recovers_into_one_folder_the_second_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one's plan is whole, and what it had begun was not touched."""
    inventory = write_inventory(tmp_path / "inventory", "b1:3181", [5], instance=INSTANCE, entries=1)
    words = ["recover", "--inventory", inventory, "--layout", "hierarchical", "--out", tmp_path / "plan"]
    with subprocess.Popen(
        [sys.executable, "-c", RECOVERING, *map(str, words)],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        second = run(capsys, *words)
        assert (second.code, second.out) == (2, "")
        assert f"{tmp_path / 'plan'}: another run is writing there" in second.err
        first.communicate()
    assert first.returncode in (0, 3, 4)
    open_dataset(tmp_path / "plan", "plan").verify()
    assert run(capsys, *words).code == 2
