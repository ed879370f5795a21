"""Captures that are used again while they are young, and what persons declared."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.check.impact.answer import LossStatement
from reconcile.check.scrutiny.evidence_age import Moment
from reconcile.jobs.impact.cache import Captured, provide_catalog, read_statements, record_statements
from recovery.errors import InputError
from tests.support.cases import case_dir
from tests.support.impact_question import make_context

BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
AGE = timedelta(minutes=10)


@pytest.fixture
def uri() -> str:
    """A store's files."""
    return f"zkfiles://{case_dir('c01') / 'zookeeper'}"


def test_a_capture_is_used_again_while_it_is_young(uri: str, tmp_path: Path) -> None:
    """The first question captures, the next ones do not, until it is too old; and a store has captures of its own."""

    def provide(minutes: float, age: timedelta = AGE, *, store: str = uri) -> tuple[bool, str]:
        captured = provide_catalog(store, tmp_path, age, make_context(lambda: BEGIN + timedelta(minutes=minutes)))
        assert captured.catalog.rows("ledgers") > 0
        assert not captured.alive
        return captured.is_fresh, captured.catalog.path

    first = provide(0)
    assert first[0]
    assert provide(9.9) == (False, first[1])
    second = provide(10)
    assert second[0]
    assert second[1] != first[1]
    assert provide(11, timedelta(0))[0]
    # Of an earlier time than the capture: a clock was set back.
    assert provide(-5)[0]
    assert provide(12, store=f"{uri}?root=/ledgers")[0]
    assert sum(1 for _ in tmp_path.glob("*/*/manifest.json")) == 3
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_captures_remember_the_transactions_of_the_day_before(uri: str, tmp_path: Path) -> None:
    """After a day the transaction of then is known: the newest that is old enough; no older one is kept."""

    def provide(hours: float) -> Captured:
        return provide_catalog(uri, tmp_path, timedelta(0), make_context(lambda: BEGIN + timedelta(hours=hours)))

    first = provide(0)
    at, txn = first.at, first.catalog.read("sources")["txn"][0].as_py()
    assert (first.since_txn, txn) == (None, txn)
    [kept] = tmp_path.glob("*/moments.json")
    moments = [Moment(3, at - timedelta(days=3)), Moment(5, at - timedelta(days=1)), Moment(9, at - timedelta(hours=1))]
    kept.write_text(json.dumps([moment.to_json() for moment in moments]))
    assert provide(1).since_txn == 5
    assert [moment[0] for moment in json.loads(kept.read_text())] == [5, 9, txn]
    kept.write_text("[[")
    assert provide(2).since_txn is None


def test_a_damaged_capture_is_made_again(uri: str, tmp_path: Path) -> None:
    """One without its files, and one that was broken off."""
    context = make_context(lambda: BEGIN)
    path = Path(provide_catalog(uri, tmp_path, AGE, context).catalog.path)
    shutil.rmtree(path / "ledgers")
    later = provide_catalog(uri, tmp_path, AGE, make_context(lambda: BEGIN + timedelta(minutes=1)))
    assert later.is_fresh
    (Path(later.catalog.path) / "manifest.json").unlink()
    assert provide_catalog(uri, tmp_path, AGE, make_context(lambda: BEGIN + timedelta(minutes=2))).is_fresh


def test_statements_are_kept_of_each_store(uri: str, tmp_path: Path) -> None:
    """The latest of each bookie; lines that are none are left out; a folder that cannot be made is said."""
    old, new = (LossStatement(f"2026-01-0{day}", "operator", "", "bk1:3181") for day in (1, 2))
    record_statements(uri, tmp_path, [old])
    record_statements(uri, tmp_path, [new])
    [kept] = tmp_path.glob("*/unrecoverable.jsonl")
    kept.write_text(kept.read_text() + '{"cut\n')
    assert read_statements(uri, tmp_path) == (new,)
    assert read_statements(f"{uri}?root=/other", tmp_path) == ()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="another folder for the captures"):
        record_statements(uri, tmp_path / "file", [new])
