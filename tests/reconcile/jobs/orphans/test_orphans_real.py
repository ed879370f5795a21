"""Orphans on a real ZooKeeper and a real etcd: what nobody names, data without a record, deletes that went past."""

import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import LiveStore, MetadataStore, ScannableStore, Write
from backends.registry import open_store
from reconcile.cli.options import now
from reconcile.deletes.own_root import open_log, open_own_root, write_last_listing
from reconcile.deletes.records import LastListing
from recovery.codecs._pb.managed_ledger_pb2 import ManagedCursorInfo
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.backup.test_follow_etcd import Following, following
from tests.reconcile.test_references_pulsar import topic
from tests.support.command import Done, run
from tests.support.deletes import Ledger, days_ago, fill_store, name_looks, write_looks, write_references
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

_roots = itertools.count()
MADE_BY = (("application", b"pulsar"), ("component", b"managed-ledger"))
OLD_MS = int(days_ago(20).timestamp() * 1000)
NAMED, OF_CURSOR, ORPHAN, YOUNG, COMPACTED, OTHER = range(1, 7)
SCOPED = LedgerId(9, ORPHAN)


def make_ledgers() -> list[Ledger]:
    """One of a topic, one of a cursor; one of nobody; one made later than any listing; two that others may name."""
    later_ms = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    return [
        Ledger(LedgerId(0, NAMED), ctime=OLD_MS, custom=MADE_BY),
        Ledger(LedgerId(0, OF_CURSOR), ctime=OLD_MS, custom=MADE_BY),
        Ledger(LedgerId(0, ORPHAN), ctime=OLD_MS, custom=MADE_BY),
        Ledger(LedgerId(0, YOUNG), ctime=later_ms, custom=MADE_BY),
        Ledger(LedgerId(0, COMPACTED), ctime=OLD_MS, custom=(MADE_BY[0], ("component", b"compacted-ledger"))),
        Ledger(LedgerId(0, OTHER), ctime=OLD_MS),
    ]


@dataclass(slots=True)
class Site:
    """A cluster in a real store, with a topic and a subscription of Pulsar's beside it."""

    uri: str
    root: str
    layout: Layout
    folder: Path
    capsys: pytest.CaptureFixture[str]
    server: ZooKeeperServer | None
    runs: int = 0

    def bkmeta(self, *words: object, code: int = 0) -> dict[str, Any]:
        """Run a command line on the cluster."""
        done: Done = run(self.capsys, *words, "--metadata", self.uri, "--json")
        assert done.code == code, done.out + done.err
        return done.result

    def look(self, *words: object, code: int) -> tuple[dict[str, Any], Path]:
        """Look for orphans; return the answer, and the folder of the run."""
        self.runs += 1
        out = self.folder / f"orphans-{self.runs}"
        return self.bkmeta("orphans", "--min-age", "0s", "--out", out, *words, code=code), out

    def touch(self, follower: Following) -> None:
        """Have the backup reach a later moment."""
        with open_store(self.uri, writable=True) as opened:
            key = self.root + ledger_key(self.layout, LedgerId(0, YOUNG))
            held = opened.store.get(key)
            assert held is not None
            opened.store.write([Write(key, held.value, held.version)])
        with open_store(self.uri) as opened:
            follower.await_through(find_last_txn(opened.store))

    def remove(self, *numbers: int) -> None:
        """Delete records as any client may."""
        with open_store(self.uri, writable=True) as opened:
            for number in numbers:
                key = self.root + ledger_key(self.layout, LedgerId(0, number))
                held = opened.store.get(key)
                assert held is not None
                opened.store.write([Write(key, None, held.version)])

    def purge(self, number: int, ledgers: Sequence[Ledger]) -> None:
        """Delete a ledger with bkmeta."""
        self.bkmeta("delete", "request", number, "--soak", "0s")
        for word in ("first", "second"):
            looks = name_looks(write_looks(self.folder / f"{word}-{number}", ledgers))
            references = write_references(self.folder / "refs.jsonl", [])
            words = ("--references", references, "--min-age", "0s", "--certificate", "c.json")
            self.bkmeta("delete", "verify", number, *looks, *words)
        self.bkmeta("delete", "purge", "--certificate", "c.json")


def find_last_txn(store: MetadataStore) -> int:
    """Return the last transaction of a running store."""
    if isinstance(store, LiveStore):
        return store.latest_txn()
    assert isinstance(store, ScannableStore)
    return store.point().txn or 0


def read_findings(out: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """Return category → ledger → finding of a run."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in open_dataset(out, "orphans").read("findings").to_pylist():
        row["said"] = {one["field"]: one["value"] for one in row["evidence"]}
        found.setdefault(row["category"], {})[row["ledger"]] = row
    return found


def read_candidates(out: Path) -> list[dict[str, int]]:
    """Return the candidates of a run."""
    return [json.loads(line) for line in (out / "candidates.jsonl").read_text().splitlines()]


@pytest.fixture(params=["zookeeper", "etcd"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Site:
    """Six closed ledgers; a topic names one of them, a cursor another one."""
    monkeypatch.chdir(tmp_path)
    above = f"/orphans-{next(_roots)}"
    server = None
    if request.param == "etcd":
        etcd: EtcdServer = request.getfixturevalue("etcd_server")
        uri, layout = f"etcd://{etcd.hosts}{above}/ledgers", Layout.ETCD
    else:
        server = request.getfixturevalue("zookeeper_server")
        uri, layout = f"zk+hierarchical://{server.hosts}{above}/ledgers", Layout.HIERARCHICAL
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, f"{above}/ledgers", layout, make_ledgers())
        of_topic = f"{above}/managed-ledgers/public/default/persistent/t"
        opened.store.write([Write(of_topic, topic(NAMED))])
        opened.store.write([Write(f"{of_topic}/sub", ManagedCursorInfo(cursorsLedgerId=OF_CURSOR).SerializeToString())])
    return Site(uri, f"{above}/ledgers", layout, tmp_path, capsys, server)


def test_one_ledger_that_nobody_names_is_the_only_candidate(site: Site) -> None:
    """I-17: not the cursor's, nor one made since, nor what no listing shows; a request takes it."""
    answer, out = site.look(code=3)
    assert answer["counts"] == {"listed": 6, "candidates": 1, "data_without_record": 0, "deleted_outside": 0}
    assert read_candidates(out) == [{"ledger": ORPHAN}]
    assert answer["coverage"]["left_out"] == {"REFERENCED": 2, "TOO_YOUNG": 1, "MAKER_UNLISTED": 2}
    said = read_findings(out)["UNREFERENCED"][ORPHAN]["said"]
    assert (said["state"], said["made by"], said["listed twice"]) == ("CLOSED", "managed-ledger", "yes")
    asked = site.bkmeta("delete", "request", "--from", out / "candidates.jsonl")
    assert [one["ledger"] for one in asked["ledgers"]] == [str(ORPHAN)]
    again, _ = site.look("--since", out, code=0)
    assert (again["counts"]["candidates"], again["coverage"]["left_out"]["DELETE_REQUESTED"]) == (0, 1)


def test_a_file_is_one_listing_until_it_is_written_anew(site: Site) -> None:
    """Twice the same file shows nothing twice; and no listing at all decides nothing."""
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write(site.root + ledger_key(site.layout, SCOPED), Ledger(SCOPED, ctime=OLD_MS).raw)])
    refs = write_references(site.folder / "refs.jsonl", [NAMED, OTHER])
    once, first = site.look("--references", refs, code=4)
    assert (once["counts"]["candidates"], once["coverage"]["left_out"]["LISTED_ONCE"]) == (0, 2)
    assert read_candidates(first) == []
    same, _ = site.look("--references", refs, "--since", first, code=4)
    assert same["counts"]["candidates"] == 0
    write_references(refs, [NAMED, OTHER])
    twice, last = site.look("--references", refs, "--since", first, code=3)
    assert twice["counts"]["candidates"] == 2
    assert sorted(read_candidates(last), key=len) == [{"ledger": ORPHAN}, {"ledger": ORPHAN, "scope": 9}]
    seen = [read_findings(run_folder)["UNREFERENCED"][ORPHAN]["first_seen"] for run_folder in (first, last)]
    assert seen[0] == seen[1]
    broken = f"metadata-store:zk:127.0.0.1:1,/{site.root}"
    unknown, out = site.look("--references", refs, "--references", broken, "--since", first, code=4)
    assert "could not be listed" in unknown["coverage"]["undecided"][0]
    assert read_candidates(out) == []


def test_data_without_a_record_and_what_bkmeta_deleted_is_none(site: Site) -> None:
    """What a topic still names has lost its record; what bkmeta purged waits for its bookies, and is no orphan."""
    everything = [*make_ledgers(), Ledger(LedgerId(0, 77), ctime=OLD_MS)]
    site.purge(OTHER, everything)
    looks = name_looks(write_looks(site.folder / "looks", everything))
    answer, first = site.look(*looks, code=3)
    found = read_findings(first)["DATA_WITHOUT_RECORD"]
    assert {ledger: row["severity"] for ledger, row in found.items()} == {77: "info"}
    assert found[77]["bookies"] == ["bk1:3181", "bk2:3181", "bk3:3181"]
    assert read_findings(first)["UNREFERENCED"][ORPHAN]["said"]["entries on one of them, at most"] == "10"
    site.remove(NAMED)
    answer, last = site.look(*looks, "--since", first, code=3)
    found = read_findings(last)["DATA_WITHOUT_RECORD"]
    assert {ledger: row["severity"] for ledger, row in found.items()} == {77: "warning", NAMED: "critical"}
    assert answer["worst"][0]["ledger"] == str(NAMED)


def test_deletes_that_went_past_are_named_with_who_and_when(site: Site) -> None:
    """By an earlier capture alone; by the store's history with its transaction, by ZooKeeper's with its session."""
    site.bkmeta("capture", "--out", "before")
    site.purge(OTHER, make_ledgers())
    site.remove(COMPACTED, NAMED)
    answer, out = site.look("--earlier", f"catalog://{site.folder / 'before'}", code=3)
    assert answer["counts"]["deleted_outside"] == 2
    found = read_findings(out)["DELETED_OUTSIDE"]
    assert {ledger: row["severity"] for ledger, row in found.items()} == {COMPACTED: "warning", NAMED: "critical"}
    assert "public/default/persistent/t" in found[NAMED]["said"]["named by"]
    history = site.uri
    if site.server is not None:
        shutil.copytree(site.server.data_dir, site.folder / "zookeeper")
        history = f"zkfiles://{site.folder / 'zookeeper'}?root={site.root}"
    _, out = site.look("--earlier", history, code=3)
    found = read_findings(out)["DELETED_OUTSIDE"]
    assert set(found) == {COMPACTED, NAMED}
    said = found[COMPACTED]["said"]
    assert "0x" in said["deleted in transaction"]
    if site.server is not None:
        assert said["deleted by session"].startswith("0x")
        assert said["deleted at"].startswith(str(datetime.now(UTC).year))


def test_what_went_since_the_last_verification_is_asked_about(site: Site, tmp_path: Path) -> None:
    """Who lost most of the ledgers may have lost what names the others: a doubt stands beside the candidates."""
    site.bkmeta("delete", "request", OTHER)
    with open_store(site.uri, writable=True) as opened, open_log(tmp_path / "j", opened.store, site.root, now) as log:
        own = open_own_root(opened.store, site.root)
        assert own is not None
        # One of the six was made later than that listing; ten may go.
        for listed, is_mass in ((15, False), (16, True)):
            write_last_listing(opened.store, own, LastListing(OLD_MS + 1, listed, "op"), log)
            answer, out = site.look(code=3)
            doubts = [row["said"] for row in read_findings(out).get("LISTING_INCOMPLETE", {}).values()]
            assert [said["ledgers that it listed and are gone"] for said in doubts] == ["11 of 16"] * is_mass
            words = [text for text in answer["coverage"]["undecided"] if "the last verification listed" in text]
            assert len(words) == is_mass


def test_another_cluster_is_refused(site: Site) -> None:
    """Inventories and copies of another cluster would make every ledger an orphan."""
    looks = write_looks(site.folder / "looks", make_ledgers())
    with open_store(site.uri, writable=True) as opened:
        for name in ("/INSTANCEID", "/instanceid"):
            held = opened.store.get(site.root + name)
            if held is not None:
                opened.store.write([Write(site.root + name, b"11111111-2222-3333-4444-555555555555", held.version)])
    done = run(site.capsys, "orphans", "--metadata", site.uri, "--out", "x", *name_looks(looks))
    assert done.code == 2
    assert "is of cluster instance" in done.err


def test_a_backup_is_a_store_that_is_listed_as_of_its_moment(site: Site) -> None:
    """A candidate needs two moments. What went past is named by its history; what disks hold later is not judged."""
    above, place = site.root.rpartition("/")[0], site.folder / "backup"
    etcd = site.layout is Layout.ETCD
    subtrees = () if etcd else (f"{above}/managed-ledgers", f"{above}/schemas")
    references = ("--references", site.folder / "refs.jsonl") if etcd else ()
    site.bkmeta("delete", "request", OTHER)
    looks = name_looks(write_looks(site.folder / "early", [*make_ledgers(), Ledger(LedgerId(0, 77), ctime=OLD_MS)]))
    asked = ("--metadata", f"backup:{place}", "--min-age", "0s", *references, "--json")

    def look(name: str, *words: object) -> dict[str, Any]:
        write_references(site.folder / "refs.jsonl", [NAMED, OF_CURSOR, COMPACTED])
        return run(site.capsys, "orphans", *asked, *words, "--out", site.folder / name).result

    with following(site, place, subtrees=subtrees) as follower:
        site.touch(follower)
        once = look("once", *looks)
        site.remove(COMPACTED)
        site.touch(follower)
    left_out = once["coverage"]["left_out"]
    assert (once["counts"]["candidates"], left_out["LISTED_ONCE"], left_out["DELETE_REQUESTED"]) == (0, 1, 1)
    assert once["counts"]["data_without_record"] == 1
    late = name_looks(write_looks(site.folder / "late", make_ledgers()))
    twice = look("twice", "--since", site.folder / "once", *late)
    assert read_candidates(site.folder / "twice") == [{"ledger": ORPHAN}]
    assert "delete request --metadata STORE --from" in twice["next"]
    assert "0x" in read_findings(site.folder / "twice")["DELETED_OUTSIDE"][COMPACTED]["said"]["deleted in transaction"]
    assert twice["counts"]["data_without_record"] == 0
    [unsearched] = [text for text in twice["coverage"]["undecided"] if "data without a record" in text]
    assert "bk1:3181" in unsearched


def test_a_copy_without_all_records_that_name_ledgers_lists_nothing(site: Site) -> None:
    """Topics were copied, and schemas were not: what names their ledgers may be missing. No file makes up for it."""
    if site.server is None:
        pytest.skip("upper layers have other keys on etcd")
    above = site.root.rpartition("/")[0]
    references = write_references(site.folder / "refs.jsonl", [])
    for name, subtrees in (("none", []), ("topics", ["managed-ledgers"]), ("both", ["managed-ledgers", "schemas"])):
        options = [word for top in subtrees for word in ("--subtree", f"{above}/{top}")]
        assert run(site.capsys, "capture", "--metadata", site.uri, "--out", site.folder / name, *options).code == 0
        words = ("--metadata", f"catalog://{site.folder / name}", "--min-age", "0s", "--out", f"{name}-run", "--json")
        stated = ("--references", references) if name == "none" else ()
        answer = run(site.capsys, "orphans", *words, *stated).result
        doubts = [text for text in answer["coverage"]["undecided"] if f"no copy of {above}/schemas" in text]
        assert len(doubts) == (name != "both")
        assert answer["coverage"]["left_out"].get("LISTED_ONCE", 0) == (name == "both")
