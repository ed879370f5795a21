"""What is of another cluster, whose bookies have the same names and its ledgers the same ids, is never believed."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.deletes.resurrection import find_deleted, read_deleted
from reconcile.jobs.impact.cache import provide_catalog
from reconcile.jobs.scrutiny import scrutinize as job
from recovery.codecs.store import INSTANCE_ID
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support import impact_question
from tests.support.command import Done, run
from tests.support.deletes import INSTANCE, Ledger, fill_zookeeper, name_looks, write_looks, write_references
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

OTHER = "1c2d3e4f-0000-4000-8000-5a6b7c8d9e0f"
LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(6))
_ROOTS = itertools.count()


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with six ledgers."""
    monkeypatch.chdir(tmp_path)
    return fill_zookeeper(zookeeper_server, f"/others-{next(_ROOTS)}/ledgers", LEDGERS)


def rename(uri: str, instance: str) -> None:
    """Give a store another instance id, as its initialisation does."""
    with open_store(uri, writable=True) as opened:
        held = opened.store.get(opened.root + INSTANCE_ID)
        assert held is not None
        opened.store.write([Write(opened.root + INSTANCE_ID, instance.encode(), held.version)])


def list_looks(folder: Path, instance: str, *, without: tuple[int, ...] = ()) -> list[str]:
    """Return options that name inventories of all bookies."""
    lacking = dict.fromkeys(("bk1:3181", "bk2:3181", "bk3:3181"), without)
    paths = write_looks(folder, LEDGERS, instance=instance, without=lacking)
    return name_looks(paths)


def require_refused(done: Done, mine: str = INSTANCE, other: str = OTHER) -> None:
    """Check that both ids are named, in one line."""
    assert done.code == 2, done.out + done.err
    said = str(done.result["verdict"])
    assert f"is of cluster instance {other}" in said
    assert mine in said


def purge(capsys: pytest.CaptureFixture[str], uri: str, folder: Path, ledger: int) -> None:
    """Delete a ledger, through both phases."""
    looks = list_looks(folder / "own", INSTANCE)
    assert run(capsys, "delete", "request", ledger, "--metadata", uri, "--soak", "0s").code == 0
    for _ in range(2):
        refs = write_references(folder / "refs.jsonl", [])
        words = ("--due", *looks, "--references", refs, "--min-age", "0s", "--certificate", "c.json")
        assert run(capsys, "delete", "verify", "--metadata", uri, *words).code == 0
    assert run(capsys, "delete", "purge", "--metadata", uri, "--certificate", "c.json").code == 0


def test_deletes_go_by_bookies_of_their_own_cluster(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A foreign bookie that lacks a ledger confirms nothing, and one that has it brings no record back."""
    purge(capsys, uri, tmp_path, 3)
    lacking = list_looks(tmp_path / "lacking", OTHER, without=(3,))
    having = list_looks(tmp_path / "having", OTHER)
    require_refused(run(capsys, "delete", "confirm", "--metadata", uri, *lacking, "--json"))
    require_refused(run(capsys, "delete", "undo", 3, "--metadata", uri, *having, "--json"))
    assert run(capsys, "delete", "request", 4, "--metadata", uri).code == 0
    refs = write_references(tmp_path / "refs.jsonl", [])
    words = ("--due", *having, "--references", refs)
    require_refused(run(capsys, "delete", "verify", "--metadata", uri, *words, "--json"))
    own = list_looks(tmp_path / "later", INSTANCE, without=(3,))
    assert run(capsys, "delete", "confirm", "--metadata", uri, *own, "--json").result["counts"]["confirmed"] == 1


def test_tombstones_of_another_cluster_delete_nothing(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are named say whose they are, those that are found are left out, and that is said."""
    purge(capsys, uri, tmp_path, 3)
    context = make_context(Output(as_json=True, progress="none"))
    [named] = read_deleted([uri], context)
    assert [source.instance_id for source in named.stores] == [INSTANCE]
    with open_store(uri) as opened:
        [found] = find_deleted(opened, [INSTANCE])
        assert found.rows["ledger"].to_pylist() == [3]
        [others] = find_deleted(opened, [OTHER])
        assert others.rows.num_rows == 0
        [(_, why)] = others.unreadable
        assert INSTANCE in why
        assert OTHER in why
    # Refused before anything is reconstructed.
    foreign = list_looks(tmp_path / "foreign", OTHER)
    words = ("--layout", "hierarchical", "--tombstones", uri, "--out", tmp_path / "plan", "--json")
    require_refused(run(capsys, "recover", *foreign, *words), mine=OTHER, other=INSTANCE)


def test_a_scrutiny_is_of_one_cluster(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither inventories nor the run before may be of another; a store that was initialised again keeps its own."""
    own, foreign = list_looks(tmp_path / "own", INSTANCE), list_looks(tmp_path / "foreign", OTHER)

    def scrutinize(name: str, *words: object) -> Done:
        return run(capsys, "scrutinize", "--metadata", uri, "--out", tmp_path / name, *words, "--json")

    assert scrutinize("first", *own).code in (0, 3)
    require_refused(scrutinize("second", *foreign))
    rename(uri, OTHER)
    require_refused(scrutinize("third", *foreign, "--since", tmp_path / "first"), mine=OTHER, other=INSTANCE)
    with open_store(uri, writable=True) as opened:
        for bookie in ("bk1:3181", "bk2:3181", "bk3:3181"):
            key = f"{opened.root}/cookies/{bookie}"
            held = opened.store.get(key)
            assert held is not None
            cookie = (
                f'4\nbookieHost: "{bookie}"\njournalDir: "j"\nledgerDirs: "1\\tl"\ninstanceId: "{INSTANCE}"\n'.encode()
            )
            opened.store.write([Write(key, cookie, held.version)])
    assert scrutinize("fourth", *own, "--since", tmp_path / "first").code in (0, 3)


def test_a_scrutiny_goes_on_in_its_own_cluster_only(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed after its first look, and the store was made again: what was seen of the other is not taken."""
    own = list_looks(tmp_path / "own", INSTANCE)
    words = ("scrutinize", "--metadata", uri, "--out", tmp_path / "run", *own, "--json")
    with monkeypatch.context() as killed:
        killed.setattr(job, "SecondLook", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(capsys, *words).code == 130
    rename(uri, OTHER)
    require_refused(run(capsys, *words), mine=OTHER, other=INSTANCE)
    catalog = open_dataset(tmp_path / "run" / "store", "catalog")
    assert catalog.read("sources")["instance_id"].to_pylist() == [OTHER]


def test_an_impact_is_of_one_cluster(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A capture that is kept of a store which is another cluster's by now is made again; inventories are compared."""
    words = ("check-impact", "--metadata", uri, "--bookies", "bk1:3181", "--catalog", tmp_path / "kept", "--json")
    require_refused(run(capsys, *words, *list_looks(tmp_path / "foreign", OTHER)))
    assert run(capsys, *words, *list_looks(tmp_path / "own", INSTANCE)).code in (0, 3, 4)
    soon = impact_question.make_context(lambda: datetime.now(UTC) + timedelta(seconds=5))
    assert not provide_catalog(uri, tmp_path / "kept", timedelta(minutes=10), soon).is_fresh
    rename(uri, OTHER)
    again = provide_catalog(uri, tmp_path / "kept", timedelta(minutes=10), soon)
    assert again.is_fresh
    assert again.catalog.read("sources")["instance_id"].to_pylist() == [OTHER]
