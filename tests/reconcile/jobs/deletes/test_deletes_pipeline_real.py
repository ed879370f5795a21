"""The pipeline of a purge as it is typed, on a real ZooKeeper and a real etcd."""

import hashlib
import itertools
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from backends.protocols import Write
from backends.registry import open_store
from reconcile.check.preflight.gc_settings import COLLECTION_STOPS
from reconcile.deletes.certificate import Certificate, encode_certificate
from reconcile.deletes.own_root import open_log, open_own_root
from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.signatures import canonicalize
from reconcile.deletes.tombstones import CERTIFICATE_MS, RECORD_BYTES, Tombstone
from recovery.codecs.store import Layout, ledger_key, mark_key, places
from recovery.model.ids import LedgerId
from tests.reconcile.test_references_pulsar import topic
from tests.support.command import Done, run
from tests.support.deletes import INSTANCE, Ledger, days_ago, fill_store, name_looks, write_looks, write_references
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

_roots = itertools.count()
WIDE = LedgerId(-2, -3)
"""Of 128 bits, the highest of both halves set."""
LEDGERS = (*(Ledger(LedgerId(0, number)) for number in range(40)), Ledger(WIDE))


@dataclass(slots=True)
class Site:
    """A cluster in a real store, and what the pipeline needs of files."""

    uri: str
    root: str
    layout: Layout
    folder: Path
    capsys: pytest.CaptureFixture[str]
    looked: int = 0

    def bkmeta(self, *words: object, code: int | None = 0) -> Done:
        """Run a command line on the cluster."""
        done = run(self.capsys, *words, "--metadata", self.uri, "--json")
        assert code is None or done.code == code, done.out + done.err
        return done

    def look(self, ledgers: tuple[Ledger, ...] = LEDGERS, **more: Any) -> list[str]:
        """Look at all bookies; return the options that name the inventories."""
        self.looked += 1
        found = write_looks(self.folder / f"look-{self.looked}", ledgers, **more)
        return name_looks(found)

    def verify(self, *words: object, code: int = 0, referenced: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
        """Verify what is due, with fresh looks and references."""
        refs = write_references(self.folder / "refs.jsonl", referenced)
        return self.bkmeta(
            "delete", "verify", *words, *self.look(**more), "--references", refs, "--min-age", "0s", code=code
        ).result

    def read(self, ledger: int | LedgerId) -> bytes | None:
        """Return a ledger's record."""
        named = LedgerId(0, ledger) if isinstance(ledger, int) else ledger
        with open_store(self.uri) as opened:
            held = opened.store.get(self.root + ledger_key(self.layout, named))
        return None if held is None else held.value

    def state(self, number: int) -> str | None:
        """Return where a ledger's delete is."""
        found = self.bkmeta("delete", "status", number, code=None).result["ledgers"]
        return found[0]["state"] if found else None


@pytest.fixture(params=["zookeeper", "etcd"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Site:
    """A cluster of forty-one closed ledgers on three bookies."""
    monkeypatch.chdir(tmp_path)
    root = f"/deletes-{next(_roots)}/ledgers"
    if request.param == "etcd":
        etcd: EtcdServer = request.getfixturevalue("etcd_server")
        uri, layout = f"etcd://{etcd.hosts}{root}", Layout.ETCD
    else:
        zookeeper: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        uri, layout = f"zk+hierarchical://{zookeeper.hosts}{root}", Layout.HIERARCHICAL
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, layout, LEDGERS)
    return Site(uri, root, layout, tmp_path, capsys)


def test_a_purge_from_request_to_expiry(site: Site) -> None:
    """Two safe verifications, a certificate, the purge, receipts of all holders; then the tombstone goes.

    The ids are of any width.
    """
    wide = str(WIDE)
    asked = site.bkmeta("delete", "request", 3, wide, "--soak", "0s", "--reason", "T-7").result
    assert [one["ledger"] for one in asked["ledgers"]] == ["3", wide]
    first = site.verify("--due", "--certificate", "c.json")
    assert (first["verdicts"], first["certificate"]) == ({"SAFE": 2, "UNSAFE": 0, "UNDECIDED": 0}, None)
    assert {one["state"] for one in first["ledgers"]} == {"VERIFIED"}
    before = site.read(3)
    second = site.verify("--due", "--certificate", "c.json")
    assert {one["state"] for one in second["ledgers"]} == {"PURGEABLE"}
    assert run(site.capsys, "certificate", "check", "c.json", "3", wide, "--json").result["hash"] == second["hash"]
    assert site.read(3) == before
    purged = site.bkmeta("delete", "purge", "--certificate", "c.json").result
    assert purged["counts"]["purged"] == 2
    assert (site.read(3), site.read(WIDE)) == (None, None)
    assert site.read(5) is not None
    assert site.bkmeta("delete", "purge", "--certificate", "c.json").result["counts"]["earlier"] == 2
    waiting = site.bkmeta("delete", "confirm", *site.look(), code=4).result
    assert set(waiting["waiting"]) == {"3", wide}
    plain = run(site.capsys, "delete", "confirm", *site.look(), "--metadata", site.uri)
    assert (COLLECTION_STOPS in plain.out) is (site.layout is Layout.ETCD)
    rest = tuple(one for one in LEDGERS if one.id not in (LedgerId(0, 3), WIDE))
    site.bkmeta("delete", "confirm", *site.look(rest, bookies=("bk1:3181", "bk2:3181")), code=4)
    assert site.bkmeta("delete", "confirm", *site.look(rest)).result["confirmed"] == ["3", wide]
    assert site.state(3) == "CONFIRMED"
    back = site.bkmeta("delete", "confirm", *site.look(without={"bk1:3181": [3, -3], "bk2:3181": [3, -3]}), code=3)
    assert back.result["returned"] == {"3": ["bk3:3181"], wide: ["bk3:3181"]}
    assert site.state(3) == "PURGED"
    journal = next(Path.cwd().glob("bkmeta-deletes-*"))
    assert run(site.capsys, "audit", "verify", journal, "--json").code == 0


def test_an_undo_before_the_purge_is_exact(site: Site) -> None:
    """The record has its bytes and its version, and there is no tombstone; its certificate is worth nothing."""
    with open_store(site.uri) as opened:
        before = opened.store.get(site.root + ledger_key(site.layout, LedgerId(0, 5)))
    site.bkmeta("delete", "request", 5, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    site.bkmeta("delete", "undo", 5)
    with open_store(site.uri) as opened:
        assert opened.store.get(site.root + ledger_key(site.layout, LedgerId(0, 5))) == before
    assert site.state(5) is None
    assert (
        "no delete was requested" in site.bkmeta("delete", "purge", "--certificate", "c.json", code=5).result["verdict"]
    )
    assert site.read(5) is not None


def test_an_undo_after_the_purge_needs_every_holder(site: Site) -> None:
    """The record comes back, byte for byte, only while all holders were seen with the ledger since."""
    before = site.read(6)
    site.bkmeta("delete", "request", 6, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    old = site.look()
    site.bkmeta("delete", "purge", "--certificate", "c.json")
    assert "was not read since" in site.bkmeta("delete", "undo", 6, code=5).result["refused"]["6"]
    assert "was not read since" in site.bkmeta("delete", "undo", 6, *old, code=5).result["refused"]["6"]
    gone = site.look(without={"bk2:3181": [6]})
    assert "bk2:3181 does not hold" in site.bkmeta("delete", "undo", 6, *gone, code=5).result["refused"]["6"]
    assert site.bkmeta("delete", "undo", 6, *site.look()).result["put_back"] == ["6"]
    assert site.read(6) == before


def test_what_changed_since_the_certificate_is_left_out_of_a_purge(site: Site) -> None:
    """A record that changed, a mark, a soak that is not over: the others go. By an altered certificate none does."""
    site.bkmeta("delete", "request", 7, 8, "--soak", "0s")
    site.bkmeta("delete", "request", 9, "--soak", "1h")
    site.verify("--due")
    assert site.state(9) == "SOAKING"
    made = site.verify("7", "8", "9", "--certificate", "c.json")
    assert {one["ledger"]: one["state"] for one in made["ledgers"]} == {
        "7": "PURGEABLE",
        "8": "PURGEABLE",
        "9": "SOAKING",
    }
    content = json.loads(Path("c.json").read_text())
    content["certificate"]["ledgers"].append({**content["certificate"]["ledgers"][0], "ledger": "9"})
    Path("altered.json").write_text(json.dumps(content))
    assert "altered" in site.bkmeta("delete", "purge", "--certificate", "altered.json", code=5).result["verdict"]
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write(site.root + mark_key(LedgerId(0, 7)), b"")])
    purge = ("delete", "purge", "--certificate", "c.json", "--batch", "1")
    done = site.bkmeta(*purge, code=3).result
    assert (done["counts"]["purged"], done["left_out"]) == (1, {"7": "it is marked for replication now"})
    ids = Path(done["ids"])
    assert ids.read_text() == "7\n"
    # Where the list cannot be written, the result of the purge is shown all the same.
    ids.unlink()
    ids.mkdir()
    (ids / "foreign").touch()
    told = site.bkmeta(*purge, code=3).result
    assert (told["ids"], told["left_out"], told["counts"]["earlier"]) == (None, done["left_out"], 1)
    shutil.rmtree(ids)
    assert (site.read(7) is None, site.read(8) is None) == (False, True)
    with open_store(site.uri, writable=True) as opened:
        held = opened.store.get(site.root + ledger_key(site.layout, LedgerId(0, 7)))
        mark = opened.store.get(site.root + mark_key(LedgerId(0, 7)))
        assert held is not None
        assert mark is not None
        opened.store.write([Write(site.root + mark_key(LedgerId(0, 7)), None, mark.version)])
        opened.store.write([Write(site.root + ledger_key(site.layout, LedgerId(0, 7)), held.value, held.version)])
    done = site.bkmeta(*purge, code=3).result
    assert (done["counts"]["earlier"], done["left_out"]) == (1, {"7": "its record is not the one that was verified"})
    assert site.read(7) is not None
    assert Path(done["ids"]).read_text() == "7\n"
    assert [one["ledger"] for one in site.verify("--from", done["ids"])["ledgers"]] == ["7"]
    unsafe = Path(site.verify("7", "9", referenced=(9,), code=3)["ids"])
    assert unsafe.read_text() == "9\n"
    assert site.verify("--from", unsafe)["ids"] is None
    assert not unsafe.exists(), "all are safe now"


def put_back_a_day(_ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone]:
    """Let a verification be of a day ago: ZooKeeper's clock, which new ones are compared with, cannot be set."""
    assert tombstone is not None
    assert tombstone.listed_ms is not None
    return PackedDecision(replace(tombstone, listed_ms=tombstone.listed_ms - CERTIFICATE_MS - 60_000))


@pytest.mark.parametrize("site", ["etcd"], indirect=True)
def test_a_certificate_that_has_ended_ends_the_quarantine_that_it_began(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And purges nothing else: what found no room in the quarantine wants a new one."""
    site.bkmeta("delete", "policy", "set", "--quarantine", "2d", "--quarantine-most", 1)
    site.bkmeta("delete", "request", 19, 20, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    stood = {number: site.read(number) for number in (19, 20)}
    first = site.bkmeta("delete", "purge", "--certificate", "c.json", code=3).result
    assert (first["counts"]["quarantined"], first["counts"]["beyond"]) == (1, 1)
    again = site.bkmeta("delete", "purge", "--certificate", "c.json", code=3).result
    assert (again["counts"]["waiting"], again["counts"]["beyond"]) == (1, 1)
    [held] = [number for number in stood if site.read(number) != stood[number]]
    [other] = set(stood) - {held}
    # A verification leaves what is in quarantine as it is, and says so.
    looked = site.verify(held, code=3)["ledgers"]
    assert (looked[0]["state"], "IN_QUARANTINE" in "".join(looked[0]["reasons"])) == ("QUARANTINED", True)
    monkeypatch.setattr("reconcile.cli.options.now", lambda: days_ago(-1.5))
    early = site.bkmeta("delete", "purge", "--certificate", "c.json").result
    assert (early["counts"]["waiting"], early["counts"]["purged"]) == (1, 0)
    monkeypatch.setattr("reconcile.cli.options.now", lambda: days_ago(-2.5))
    done = site.bkmeta("delete", "purge", "--certificate", "c.json").result
    assert [item["ledger"] for item in done["ledgers"]] == [str(held)]
    assert (site.read(held), site.read(other)) == (None, stood[other])
    assert (site.state(held), site.state(other)) == ("PURGED", "PURGEABLE")
    ended = site.bkmeta("delete", "purge", "--certificate", "c.json", code=5).result["verdict"]
    assert "is not valid: it ended at" in ended


def test_what_a_certificate_names_is_due_when_it_has_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it is left to that certificate, which is said; after that a new one is made of it, and purges.

    A certificate that has ended, or another cluster's, or one without the signature that is demanded, purges nothing. A
    second request leaves the first as it is.
    """
    site.bkmeta("delete", "request", 19, "--soak", "0s")
    again = site.bkmeta("delete", "request", 19, "--soak", "7d").result
    assert (again["ledgers"], again["earlier"]) == ([], ["19"])
    site.verify("--due")
    site.verify("--due", "--certificate", "first.json")
    body = json.loads(Path("first.json").read_text())["certificate"]
    body["cluster"]["instance_id"] = "another"
    foreign = Certificate(body, hashlib.sha256(canonicalize(body)).hexdigest())
    Path("foreign.json").write_bytes(encode_certificate(foreign))
    key = Ed25519PrivateKey.generate().public_key()
    Path("key.pem").write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    for words, problem in (
        (("foreign.json",), f"is of cluster another at {site.root}; the store is {INSTANCE}"),
        (("first.json", "--key", "key.pem"), "it is not signed, although a key was given"),
    ):
        assert problem in site.bkmeta("delete", "purge", "--certificate", *words, code=5).result["verdict"]
    with monkeypatch.context() as patch:
        patch.setattr("reconcile.cli.options.now", lambda: days_ago(-1.1))
        refused = site.bkmeta("delete", "purge", "--certificate", "first.json", code=5).result["verdict"]
        assert "is not valid: it ended at" in refused
    assert site.read(19) is not None
    left = site.bkmeta("delete", "verify", "--due", *site.look(), "--certificate", "none.json").result
    assert (left["counts"]["certified"], left["ledgers"], left["certificate"]) == (1, [], None)
    with (
        open_store(site.uri, writable=True) as opened,
        open_log(site.folder / "past", opened.store, opened.root, lambda: days_ago(0)) as log,
    ):
        own = open_own_root(opened.store, opened.root)
        assert own is not None
        own.tombstones.change([LedgerId(0, 19)], put_back_a_day, log, rows=1)
    renewed = site.verify("--due", "--certificate", "second.json")
    assert [one["state"] for one in renewed["ledgers"]] == ["PURGEABLE"]
    refused = site.bkmeta("delete", "purge", "--certificate", "first.json", code=5).result["verdict"]
    assert "later verification" in refused
    site.bkmeta("delete", "purge", "--certificate", "second.json")
    assert site.read(19) is None


def test_records_that_are_large_beside_a_transaction(site: Site) -> None:
    """No server takes two of half a megabyte together; what fits with nothing else goes alone, the rest is refused."""
    sizes = {41: 470_000, 42: 470_000, 43: RECORD_BYTES - 1_000, 44: RECORD_BYTES}
    large = tuple(Ledger(LedgerId(0, n), custom=(("x", b"z" * size),)) for n, size in sizes.items())
    with open_store(site.uri, writable=True) as opened:
        fill_store(opened.store, site.root, site.layout, large)
    asked = site.bkmeta("delete", "request", *sizes, "--soak", "0s", code=5).result
    assert [one["ledger"] for one in asked["ledgers"]] == ["41", "42", "43"]
    assert {ledger: "larger than a tombstone takes" in why for ledger, why in asked["refused"].items()} == {"44": True}
    for words in ((), ("--certificate", "c.json")):
        assert site.verify("--due", *words, ledgers=(*LEDGERS, *large))["verdicts"]["SAFE"] == 3
    assert site.verify("44", code=3, ledgers=large)["ledgers"][0]["reasons"][0].startswith("TOO_LARGE")
    site.bkmeta("delete", "purge", "--certificate", "c.json")
    assert [site.read(number) for number in (41, 42, 43)] == [None] * 3
    back = site.bkmeta("delete", "undo", 41, 42, 43, *site.look((*LEDGERS, *large))).result
    assert back["put_back"] == ["41", "42", "43"]
    assert [site.read(one.id.ledger) for one in large] == [one.raw for one in large]


def test_a_bookie_that_does_not_answer_makes_it_undecided(site: Site) -> None:
    """I-19: with one of three holders out of reach there is no certificate, and the exit code says undecided."""
    site.bkmeta("delete", "request", 10, "--soak", "0s")
    site.verify("--due")
    seen = site.verify("10", "--certificate", "c.json", code=4, bookies=("bk1:3181", "bk2:3181"))
    [ledger] = seen["ledgers"]
    assert (ledger["verdict"], ledger["state"]) == ("UNDECIDED", "REQUESTED")
    assert ledger["reasons"] == ["HOLDER_UNSEEN: bookie bk3:3181 was not read"]
    assert not Path("c.json").exists()
    stale = site.verify("10", code=4, ended=days_ago(2))
    assert any("not read lately" in reason for reason in stale["ledgers"][0]["reasons"])


def test_a_breaker_asks_for_the_number(site: Site) -> None:
    """More deletes than a day may have are unsafe until their number is confirmed, and the purge asks for the hash."""
    numbers = range(12)
    site.bkmeta("delete", "request", *numbers, "--soak", "0s")
    tripped = site.verify("--due", code=3)
    assert tripped["breaker"]["tripped"]
    assert all(one["reasons"][0].startswith("BREAKER") for one in tripped["ledgers"])
    site.verify("--due", "--confirm", "12")
    made = site.verify("--due", "--confirm", "12", "--certificate", "c.json")
    assert "more than" in site.bkmeta("delete", "purge", "--certificate", "c.json", code=5).result["verdict"]
    wrong = made["hash"][1:13]
    assert (
        f"confirmed for '{wrong}'"
        in site.bkmeta("delete", "purge", "--certificate", "c.json", "--confirm", wrong, code=5).result["verdict"]
    )
    site.bkmeta("delete", "purge", "--certificate", "c.json", "--confirm", made["hash"][:12])
    assert site.read(0) is None
    waiting = site.bkmeta("delete", "confirm", *site.look(), code=4).result
    assert "read again: bkmeta delete confirm" in waiting["next"]


def test_a_root_that_is_not_ours_is_refused(site: Site) -> None:
    """What somebody else keeps at the key of our own root is never written to."""
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write(f"{site.root}-bkmeta", b"mine")])
    looks = site.look()
    lines = [["delete", *words] for words in (["request", 1], ["verify", 1, *looks], ["confirm", *looks], ["status"])]
    lines += [["tombstones", "list"], ["tombstones", "expire"], ["orphans", "--out", "orphans"]]
    lines += [["archive", word, 1] for word in ("mark", "unmark", "show")]
    for words in lines:
        assert "not made by this program" in site.bkmeta(*words, code=5).result["verdict"]


def test_the_archival_rule_wants_a_mark(site: Site) -> None:
    """Without one the ledger is unsafe; with one it is safe; and it is looked at again when it is purged."""
    site.bkmeta("delete", "request", 12, "--soak", "0s")
    rule = ("--archived", "required")
    assert site.verify("--due", *rule, code=3)["ledgers"][0]["reasons"][0].startswith("NOT_ARCHIVED")
    assert site.bkmeta("archive", "show", 12, code=3).result["missing"] == ["12"]
    lines = ({"ledger": 12, "to": "s3://b/12", "checksum": "c0ffee"}, {"ledger": str(WIDE)})
    Path("copies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    site.bkmeta("archive", "mark", "--from", "copies.jsonl", "--by", "backup", "--to", "s3://rest")
    [rest] = site.bkmeta("archive", "show", WIDE).result["marks"]
    assert (rest["to"], rest["checksum"]) == ("s3://rest", None)
    [mark] = site.bkmeta("archive", "show", 12).result["marks"]
    assert (mark["by"], mark["to"], mark["checksum"]) == ("backup", "s3://b/12", "c0ffee")
    site.verify("--due", *rule)
    site.verify("--due", *rule, "--certificate", "c.json")
    assert site.bkmeta("archive", "unmark", 12).result["counts"]["unmarked"] == 1
    purge = ("delete", "purge", "--certificate", "c.json")
    assert "no archive mark now" in site.bkmeta(*purge, code=5).result["verdict"]
    site.bkmeta("archive", "mark", 12)
    site.bkmeta(*purge)


def test_a_tombstone_waits_for_a_bookie_until_it_is_decommissioned(site: Site) -> None:
    """I-18: a bookie away for longer than the retention is named; only when it is out of service the tombstone goes."""
    site.bkmeta("delete", "request", 13, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    site.bkmeta("delete", "purge", "--certificate", "c.json")
    rest = tuple(one for one in LEDGERS if one.id.ledger != 13)
    looks = site.look(rest, bookies=("bk1:3181", "bk2:3181"))
    late = site.bkmeta("delete", "confirm", *looks, "--retention", "0s", code=3).result
    assert (late["overdue"], late["waiting"]) == ({"bk3:3181": 1}, {"13": ["bk3:3181"]})
    assert site.bkmeta("tombstones", "expire", "--retention", "0s").result["counts"] == {"expired": 0, "kept": 1}
    registration = f"{site.root}{places(site.layout).registrations[0]}/bk3:3181"
    with open_store(site.uri, writable=True) as opened:
        [version] = opened.store.write([Write(registration, b"")])
        gone = ("tombstones", "decommission", "bk3:3181")
        assert "in service" in site.bkmeta(*gone, code=5).result["verdict"]
        opened.store.write([Write(registration, None, version)])
    assert site.bkmeta(*gone).result["counts"]["tombstones"] == 1
    listed = site.bkmeta("tombstones", "list", "--state", "CONFIRMED").result
    assert [row["ledger"] for row in listed["ledgers"]] == ["13"]
    assert (listed["counts"]["nodes"], listed["counts"]["bytes"] > 100) == (1, True)
    assert site.bkmeta("tombstones", "expire", "--retention", "1d").result["counts"]["expired"] == 0
    assert site.bkmeta("tombstones", "expire", "--retention", "0s").result["expired"] == ["13"]
    assert site.state(13) is None


def test_what_is_not_there_is_said(site: Site) -> None:
    """A ledger without a record gets no tombstone, and has no delete."""
    assert site.bkmeta("delete", "request", 1, 99, code=3).result["absent"] == ["99"]
    assert site.bkmeta("delete", "status", 1, 99, code=3).result["missing"] == ["99"]


def test_a_file_of_references_is_a_listing_by_what_it_says(site: Site) -> None:
    """Touched, or copied, it is not listed again; one that says nothing was listed when it was written."""
    site.bkmeta("delete", "request", 14, "--soak", "0s")
    refs = write_references(site.folder / "refs.jsonl", [])
    words = ("delete", "verify", "--due", "--references", refs, "--min-age", "0s")
    assert site.bkmeta(*words, *site.look()).result["verdicts"]["SAFE"] == 1
    os.utime(refs)
    [ledger] = site.bkmeta(*words, *site.look(), code=4).result["ledgers"]
    assert [reason.partition(": ")[2] for reason in ledger["reasons"]] == [
        "these references were listed for the verification before: list them again"
    ]
    refs.write_text('{"listed": "2090-01-01T00:00:00Z"}')
    [ledger] = site.bkmeta(*words, *site.look(), code=4).result["ledgers"]
    assert "later than now" in ledger["reasons"][0]
    refs.write_text('{"ledger": 15}\n')
    assert site.bkmeta(*words, *site.look()).result["verdicts"]["SAFE"] == 1
    os.utime(refs, (days_ago(1).timestamp(),) * 2)
    [ledger] = site.bkmeta(*words, *site.look(), code=4).result["ledgers"]
    assert any("listed for the verification before" in reason for reason in ledger["reasons"])


def test_what_went_since_the_last_verification_is_asked_about(site: Site) -> None:
    """A store that lost a dozen ledgers between two verifications is not believed until somebody says how many."""
    site.bkmeta("delete", "request", 15, "--soak", "0s")
    assert site.verify("--due")["absence"] is None
    with open_store(site.uri, writable=True) as opened:
        for number in range(20, 31):
            key = site.root + ledger_key(site.layout, LedgerId(0, number))
            held = opened.store.get(key)
            assert held is not None
            opened.store.write([Write(key, None, held.version)])
            # What is made since does not hide what went.
            fresh = Ledger(LedgerId(0, 100 + number), ctime=int(time.time() * 1000))
            opened.store.write([Write(site.root + ledger_key(site.layout, fresh.id), fresh.raw)])
    for _ in range(2):
        seen = site.verify("--due", "--certificate", "c.json", code=4)
        assert (seen["absence"]["gone"], seen["absence"]["limit"], seen["absence"]["mass"]) == (11, 10, True)
        assert seen["ledgers"][0]["reasons"][0].startswith("MASS_ABSENCE: 11 of the 41 ledgers")
    references = ("--references", write_references(site.folder / "refs.jsonl", []))
    said = run(site.capsys, "delete", "verify", "--due", *site.look(), *references, "--metadata", site.uri).out
    assert "many ledgers went: --history backup:PLACE, or --absent 11 if that is right" in said
    assert site.verify("--due", "--absent", "11")["ledgers"][0]["state"] == "VERIFIED"
    last = site.verify("--due", "--certificate", "c.json")
    assert (last["absence"]["gone"], last["absence"]["listed"]) == (0, 41)
    # What bkmeta purged itself is not missed.
    site.bkmeta("delete", "purge", "--certificate", "c.json")
    site.bkmeta("delete", "request", 16, "--soak", "0s")
    assert site.verify("--due")["absence"]["gone"] == 0
    journal = next(Path.cwd().glob("bkmeta-deletes-*"))
    assert run(site.capsys, "audit", "verify", journal, "--json").code == 0


def test_a_file_of_references_is_read_again_by_the_purge(site: Site) -> None:
    """A ledger that it names by now is left out; where the file is gone, the purge says what it went by."""
    for number in (15, 16, 17):
        site.bkmeta("delete", "request", number, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    references = write_references(site.folder / "refs.jsonl", [16])
    first = site.bkmeta("delete", "purge", "--certificate", "c.json", code=3).result
    assert (first["counts"]["purged"], list(first["left_out"])) == (2, ["16"])
    assert first["references_as_then"] == []
    references.write_text("no line of JSON\n")
    broken = site.bkmeta("delete", "purge", "--certificate", "c.json", code=None)
    assert broken.code != 0
    assert site.read(16) is not None
    references.unlink()
    last = site.bkmeta("delete", "purge", "--certificate", "c.json").result
    assert (last["counts"]["purged"], last["references_as_then"]) == (1, [str(references)])


def test_a_clock_that_is_ahead_ends_no_soak(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper's own time says so; etcd keeps none, which the page says: there the soak is over."""
    site.bkmeta("delete", "request", 18, "--soak", "7d")
    site.verify("--due")
    ahead = days_ago(-8)
    refs = write_references(site.folder / "ahead.jsonl", [], at=ahead)
    words = ("delete", "verify", "--due", "--certificate", "c.json", "--references", refs, *site.look(ended=ahead))
    has_times = site.layout is Layout.HIERARCHICAL
    with monkeypatch.context() as patch:
        patch.setattr("reconcile.cli.options.now", lambda: ahead)
        seen = site.bkmeta(*words, code=5 if has_times else 0).result
    if has_times:
        assert "seconds ahead of the store's" in seen["verdict"]
        assert not Path("c.json").exists()
    assert site.state(18) == ("SOAKING" if has_times else "PURGEABLE")


def test_a_clock_that_is_not_the_stores_purges_nothing_and_ends_no_retention(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one that is behind a certificate holds for ever, by one that is ahead no tombstone is kept; etcd has none."""
    site.bkmeta("delete", "request", 20, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    purge, code = ("delete", "purge", "--certificate", "c.json"), 5 if site.layout is Layout.HIERARCHICAL else 0
    with monkeypatch.context() as patch:
        patch.setattr("reconcile.cli.options.now", lambda: days_ago(-0.01))
        site.bkmeta(*purge, code=code)
    assert (site.read(20) is not None) is bool(code)
    if not code:
        return
    site.bkmeta(*purge)
    rest = tuple(one for one in LEDGERS if one.id.ledger != 20)
    assert site.bkmeta("delete", "confirm", *site.look(rest, ended=days_ago(-0.01)), code=4).result["confirmed"] == []
    assert site.bkmeta("delete", "confirm", *site.look(rest)).result["confirmed"] == ["20"]
    with monkeypatch.context() as patch:
        patch.setattr("reconcile.cli.options.now", lambda: days_ago(-40))
        refused = site.bkmeta("tombstones", "expire", code=5).result["verdict"]
    assert "seconds ahead of the store's" in refused
    assert site.state(20) == "CONFIRMED"


def test_a_topic_that_names_a_ledger_since_stops_the_purge(site: Site) -> None:
    """The records of a broker beside the ledgers are read again right before a record is removed."""
    topics = f"{site.root.rpartition('/')[0]}/managed-ledgers"
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write(f"{topics}/public/default/persistent/kept", topic(1))])
    site.bkmeta("delete", "request", 17, "--soak", "0s")
    site.verify("--due")
    site.verify("--due", "--certificate", "c.json")
    with open_store(site.uri, writable=True) as opened:
        [version] = opened.store.write([Write(f"{topics}/public/default/persistent/late", topic(17))])
    refused = site.bkmeta("delete", "purge", "--certificate", "c.json", code=5).result["verdict"]
    assert "ledger 17: public/default/persistent/late refers to it now" in refused
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write(f"{topics}/public/default/persistent/late", b"no record", version)])
    refused = site.bkmeta("delete", "purge", "--certificate", "c.json", code=5).result["verdict"]
    assert "references cannot be listed again" in refused
    assert site.read(17) is not None
