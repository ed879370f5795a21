"""A command that is stopped says of the dataset that it writes whether it is whole, and that is so."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recovery import dataset as datasets
from recovery.dataset import MANIFEST, open_dataset
from tests.simulation.bookie_dir import make_bookie
from tests.support.command import run
from tests.support.paths import DATA

WHOLE = "is whole: go on with it"
NOT_YET = "run the same command again"


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
