"""What a plan takes back of what somebody deleted: of captures alone, without a server."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconcile.plan import plan_reader
from reconcile.plan.manifest import read_plan_manifest
from reconcile.rules.holds import HOLD_MARK
from recovery.capture.live import capture
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from tests.support.command import Done, environment, run
from tests.support.inventories import write_inventory
from tests.support.scannable_store import ScannableMemory

ROOT = "/ledgers"
MINUTE_MS = 60_000
BEGUN_MS = 1_767_225_600_000
"""2026-01-01T00:00Z."""
RECORD = LedgerMetadata(
    3, 3, 2, 2, LedgerState.CLOSED, 9, 90, (Segment(0, ("b1", "b2", "b3")),), Digest.CRC32C, b"pw", 1_700_000_000_000
)
Undelete = Callable[..., Done]


def key_of(number: int) -> str:
    """Return the key of a ledger."""
    return ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number))


def encode(number: int, **changes: Any) -> bytes:
    """Return the record of a ledger, like no other's."""
    return ledger_metadata.encode(replace(RECORD, length=number, **changes))


@dataclass
class Cluster:
    """A store with a clock that tests set, and captures of it."""

    folder: Path
    now_ms: int = BEGUN_MS
    source: ScannableMemory = field(init=False)

    def __post_init__(self) -> None:
        self.source = self.make_store()
        self.source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
        self.source.put(ROOT + store.INSTANCE_ID, b"one")

    def make_store(self, **options: Any) -> ScannableMemory:
        """Return a store of the cluster's time."""
        return ScannableMemory(lambda: self.now_ms, **options)

    def create(self, *numbers: int, **changes: Any) -> None:
        """Make ledgers."""
        for number in numbers:
            self.source.put(key_of(number), encode(number, **changes))

    def delete(self, *numbers: int, session: int, minute: int) -> None:
        """Delete ledgers at a time."""
        self.source.session, self.now_ms = session, BEGUN_MS + minute * MINUTE_MS
        for number in numbers:
            self.source.put(key_of(number), None)

    def capture(self, name: str, source: ScannableMemory | None = None, *, with_history: bool = True) -> str:
        """Capture the store as it is now, and return the URI of that."""
        with DatasetWriter(self.folder / name, "catalog", binding={"root": ROOT}, secret=True) as out:
            given = self.source if source is None else source
            capture(given, ROOT, None, out, clock=lambda: datetime.now(UTC), with_history=with_history)
        return f"catalog://{self.folder / name}"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster without ledgers."""
    return Cluster(tmp_path)


@pytest.fixture
def undelete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Undelete:
    """Run the command on the store as it was captured at last, with its own history."""

    def asked(metadata: str, *words: object) -> Done:
        return run(capsys, "undelete", "--metadata", metadata, "--out", tmp_path / "plan", *words)

    return asked


def read_plan(folder: Path) -> dict[int, bytes]:
    """Return the records that a plan writes, after seeing that it is whole and that its sums hold."""
    plan = open_dataset(folder, "plan")
    assert plan_reader.overview(plan, shown=0).problems == ()
    assert read_plan_manifest(plan).counts.add_up
    rows = plan.read("actions").to_pylist()
    return {row["ledger"]: row["value"] for row in rows if row["kind"] == "ledger" and row["op"] == "create"}


def reasons_of(done: Done) -> dict[str, str]:
    """Return why ledgers do not come back."""
    return {ledger: kept["reason"] for ledger, kept in done.result["kept"].items()}


def test_a_session_in_its_window_comes_back_and_nothing_else(
    cluster: Cluster, undelete: Undelete, tmp_path: Path
) -> None:
    """Of a broker's session only what it deleted inside the window; its other deletes are drawn beside them."""
    cluster.create(*range(1, 9))
    cluster.create(9, last_entry=NO_ENTRY)
    cluster.create(10, state=LedgerState.OPEN, last_entry=None)
    cluster.delete(1, 2, session=7, minute=0)
    cluster.delete(3, 4, 9, session=7, minute=50)
    cluster.delete(5, session=8, minute=51)
    cluster.delete(6, session=7, minute=90)
    now = cluster.capture("now")
    asked = ("--session", "0x7", "--from-time", "2026-01-01T00:49", "--to-time", "2026-01-01T00:52")
    done = undelete(now, *asked)
    assert done.code == 0, done
    assert "3 of 3 deleted ledgers come back" in done.out
    assert "6 in all, 3 of them inside the window" in done.out
    assert "closed without an entry: 1 ledger" in done.out
    assert read_plan(tmp_path / "plan") == {3: encode(3), 4: encode(4), 9: encode(9, last_entry=NO_ENTRY)}
    sides = open_dataset(tmp_path / "plan", "plan").read("sides").to_pylist()
    assert {(row["relation"], row["deleted_session"]) for row in sides} == {("deleted", 7)}


def test_a_session_without_a_window_is_drawn_and_makes_no_plan(
    cluster: Cluster, undelete: Undelete, tmp_path: Path
) -> None:
    """What can be chosen is shown: who deleted, then when; half a window is no window."""
    cluster.create(*range(1, 9))
    for number in range(1, 6):
        cluster.delete(number, session=7, minute=number * 24 * 60)
    cluster.delete(6, 7, session=8, minute=6 * 24 * 60)
    now = cluster.capture("now")
    looked = undelete(now)
    assert looked.code == 2
    assert looked.out.index("session 0x7: 5 ledgers") < looked.out.index("session 0x8: 2 ledgers")
    for words in ((), ("--from-time", "2026-01-01"), ("--to-time", "2027-01-01")):
        drawn = undelete(now, "--session", "0x7", *words, "--json")
        assert drawn.code == 2
        bars = drawn.result["histogram"]
        assert [(bar["deletes"], bar["chosen"]) for bar in bars] == [(1, 0)] * 5
    assert not (tmp_path / "plan").exists()


def test_what_does_not_come_back_is_named_with_its_reason(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """Reused ids, holds, bytes that nobody can read, what no history knows; the others come back."""
    cluster.create(1, 2, 3, 6)
    cluster.create(4, custom=((HOLD_MARK, b"limbo"),), state=LedgerState.IN_RECOVERY, last_entry=None)
    cluster.source.put(key_of(5), b"no record")
    cluster.delete(*range(1, 7), session=7, minute=1)
    cluster.create(1, custom=(("another", b"ledger"),))
    cluster.create(2)
    cluster.delete(2, session=8, minute=3)
    window = ("--from-time", "0", "--to-time", "2026-01-01T00:02")
    done = undelete(cluster.capture("now"), "--session", "7", *window, "--json")
    assert done.code == 3
    assert reasons_of(done) == {"1": "in_store", "2": "deleted_again", "4": "hold", "5": "unparsable"}
    assert read_plan(tmp_path / "plan") == {3: encode(3), 6: encode(6)}


def test_a_history_with_a_gap_is_said_to_have_one(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """What was found comes back, with exit 4: more may have been deleted that is not seen."""
    cluster.create(1)
    torn = cluster.make_store(torn=True)
    torn.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    torn.put(key_of(1), encode(1))
    cut = cluster.capture("torn", torn)
    cluster.delete(1, session=7, minute=1)
    done = undelete(cluster.capture("now", with_history=False), "--history", cut, "1")
    assert done.code == 4
    assert "the history has a gap" in done.out
    assert read_plan(tmp_path / "plan") == {1: encode(1)}


def test_a_copy_gives_closed_ledgers_alone(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """Of what only a copy has, the newest copy's record counts; what it has open is named, and stays deleted."""
    cluster.create(1, 2)
    cluster.create(3, state=LedgerState.OPEN, last_entry=None)
    older = cluster.capture("older", with_history=False)
    moved = (Segment(0, ("b1", "b2", "b4")),)
    cluster.source.put(key_of(2), encode(2, segments=moved))
    cluster.now_ms += MINUTE_MS
    newer = cluster.capture("newer", with_history=False)
    cluster.delete(1, 2, 3, session=7, minute=5)
    now = cluster.capture("now", with_history=False)
    done = undelete(now, "--history", older, "--history", newer, "1", "2", "3", "4", "--json")
    assert done.code == 3
    assert reasons_of(done) == {"3": "not_closed", "4": "not_known"}
    assert read_plan(tmp_path / "plan") == {1: encode(1), 2: encode(2, segments=moved)}
    assert done.result["counts"]["as_captured"] == 2


def test_inventories_show_what_bookies_have_collected(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """A ledger with entries that no bookie has is counted; one without entries is not. A file names the ledgers."""
    cluster.create(1, 2)
    cluster.create(3, last_entry=NO_ENTRY)
    cluster.delete(1, 2, 3, session=7, minute=1)
    write_inventory(tmp_path / "inventory", "b1", [1], instance="one")
    (tmp_path / "ids.txt").write_text("1\n2\n3\n")
    done = undelete(cluster.capture("now"), "--from", tmp_path / "ids.txt", "--inventory", tmp_path / "inventory")
    assert done.code == 0, done
    assert "on no bookie that was read: 1 ledger with entries" in done.out
    plan: Dataset = open_dataset(tmp_path / "plan", "plan")
    assert {row["ledger"] for row in plan.read("sides").to_pylist() if row["on_bookies"]} == {1}


def test_a_history_of_another_cluster_is_refused(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """Ledgers have the same ids there."""
    other = Cluster(tmp_path / "other")
    other.source.put(ROOT + store.INSTANCE_ID, b"two")
    other.create(1)
    done = undelete(cluster.capture("now"), "--history", other.capture("then"), "1")
    assert done.code == 2
    assert "cluster instance two" in done.out + done.err


def test_a_generator_that_is_behind_is_raised(cluster: Cluster, undelete: Undelete, tmp_path: Path) -> None:
    """A store that was put back in time would give the ids of what comes back again."""
    cluster.create(1234)
    cluster.delete(1234, session=7, minute=1)
    assert undelete(cluster.capture("now"), "1234").code == 0
    rows = open_dataset(tmp_path / "plan", "plan").read("actions").to_pylist()
    raised = [(row["key"], row["value"]) for row in rows if row["op"] == "raise"]
    assert raised == [(store.generator_key(Layout.HIERARCHICAL), b"1234")]


def test_nothing_of_spark_is_loaded(cluster: Cluster, tmp_path: Path) -> None:
    """From the command line to the whole plan."""
    cluster.create(1)
    cluster.delete(1, session=7, minute=1)
    words = ["undelete", "1", "--metadata", cluster.capture("now"), "--out", str(tmp_path / "plan")]
    code = (
        f"import sys\nsys.argv[1:] = {words!r}\nfrom reconcile.cli.__main__ import main\ntry:\n    main()\nfinally:\n"
        "    assert not {'pyspark', 'py4j', 'pandas'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert read_plan(tmp_path / "plan") == {1: encode(1)}
