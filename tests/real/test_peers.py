"""Clusters of other releases: what each wrote is read, its bookies answer the wire, its client reads our records."""

import base64
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from backends.bookie.client import BookieOptions
from backends.protocols import Write
from backends.registry import open_store
from recovery.bookies.addresses import read_members
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_results import AskedKind
from recovery.capture.live import capture
from recovery.codecs import cookie, ledger_record
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from tests.support.command import run
from tests.support.peers import RELEASES, Peer
from tests.support.plans import clock
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

SOAK: Final = "BKMETA_SOAK_PEERS" in os.environ
"""Every release; else the first one, which is the least like our own."""
TRIED: Final = RELEASES if SOAK else RELEASES[:1]
BOOKIES: Final = {
    "peer-sorted": "SortedLedgerStorage",
    "peer-interleaved": "InterleavedLedgerStorage",
    "peer-db": "storage.ldb.DbLedgerStorage",
    "peer-spare": "SortedLedgerStorage",
}
DIGESTS: Final = {"MAC": "HMAC"}
"""Java's names for what records call otherwise."""
LISTING: Final = ("peer-sorted", "peer-interleaved", "peer-spare")
"""Those whose storage answers what it has of a ledger."""
FORMATS: Final = (3, 2)
"""Of records, that have what was written."""


@dataclass(frozen=True)
class Written:
    """One ledger: what its client was told, and the entries that were acknowledged."""

    ledger: int
    digest: str
    password: bytes
    entries: tuple[bytes, ...]

    @property
    def key(self) -> dict[str, Any]:
        """What opens it."""
        return {"ledger": self.ledger, "digest": self.digest, "password": self.password}


@dataclass(frozen=True)
class Old:
    """A cluster of another release, with all that it wrote."""

    release: str
    home: Path
    peer: Peer
    uri: str
    written: tuple[Written, ...]

    def read(self, written: Written, *, recover: bool = False) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Return the record and the entries as its client reads them."""
        found = self.peer("read", recover=recover, **written.key)
        return found["record"], tuple(base64.b64decode(entry) for entry in found["entries"])


def _write(peer: Peer, digest: str, password: bytes, count: int, *, close: bool, lose: bool = False) -> Written:
    shape = {"E": 3, "W": 2, "A": 2, "digest": digest, "password": password, "custom": {"made-by": b"\x00\xff"}}
    ledger = peer("create", **shape)
    entries = tuple(f"{digest} {ledger} {n}".encode() * 9 for n in range(count))
    peer("add", ledger=ledger, entries=entries[: count // 2])
    first = peer("read", ledger=ledger, digest=digest, password=password)["record"]["segments"][0][1][0]
    if lose:
        peer("stop", bookie=first)
    peer("add", ledger=ledger, entries=entries[count // 2 :])
    if lose:
        peer("start", bookie=first, storage=BOOKIES[first])
    if close:
        peer("close", ledger=ledger)
    return Written(ledger, digest, password, entries)


@pytest.fixture(scope="module", params=TRIED)
def old(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper_server: ZooKeeperServer
) -> Iterator[Old]:
    """A cluster of a release: each digest, closed and open, custom metadata, an ensemble that was changed."""
    release = request.param
    home = tmp_path_factory.mktemp("peers") / release
    uri = f"zk+hierarchical://{zookeeper_server.hosts}/peers-{release}"
    with Peer(release, home, uri) as peer:
        assert peer("format")
        for bookie, storage in BOOKIES.items():
            peer("start", bookie=bookie, storage=storage)
        written = (
            _write(peer, "CRC32C", b"pw", 12, close=True),
            _write(peer, "MAC", b"secret", 6, close=True),
            _write(peer, "CRC32", b"", 3, close=False),
            _write(peer, "DUMMY", b"", 5, close=True),
            _write(peer, "CRC32C", b"", 0, close=True),
            _write(peer, "CRC32C", b"pw", 20, close=True, lose=True),
        )
        yield Old(release, home, peer, uri, written)


def captured(old: Old, folder: Path) -> Dataset:
    """Capture the store as the command does."""
    with open_store(old.uri) as opened, DatasetWriter(folder, "catalog", binding={}, secret=True) as out:
        summary = capture(opened.store, opened.root, Layout.HIERARCHICAL, out, clock=clock())
    assert summary.complete, summary.gaps
    return open_dataset(folder, "catalog")


def as_java_has_it(row: dict[str, Any]) -> dict[str, Any]:
    """Return a catalog's row in the words of the client."""
    names = ("ledger", "state", "ensemble_size", "write_quorum", "ack_quorum")
    is_closed = row["state"] == "CLOSED"
    return {
        **{name: row[name] for name in names},
        "last_entry": row["last_entry"] if is_closed else -1,
        "length": row["length"] if is_closed else 0,
        "digest": {name: api for api, name in DIGESTS.items()}.get(row["digest"], row["digest"]),
        "segments": [[segment["first"], segment["members"]] for segment in row["segments"]],
        "custom": {entry["key"]: base64.b64encode(entry["value"]).decode() for entry in row["custom"] or ()},
    }


def test_what_another_release_wrote_is_read(old: Old, tmp_path: Path) -> None:
    """Records field by field as its client has them, its layout, and its cookies, which name its bookies."""
    catalog = captured(old, tmp_path / "catalog")
    rows = {row["ledger"]: as_java_has_it(row) for row in catalog.read("ledgers").to_pylist()}
    assert rows == {written.ledger: old.read(written)[0] for written in old.written}
    assert max(len(row["segments"]) for row in rows.values()) == 2
    [source] = catalog.read("sources").to_pylist()
    assert (source["layout"], bool(source["instance_id"])) == ("hierarchical", True)
    nodes = {row["path"]: row for row in catalog.read("nodes").to_pylist()}
    cookies = {bookie: cookie.decode(nodes[f"/cookies/{bookie}"]["raw"]) for bookie in BOOKIES}
    assert {bookie: made.bookie_id for bookie, made in cookies.items()} == {bookie: bookie for bookie in BOOKIES}
    assert {made.instance_id for made in cookies.values()} == {source["instance_id"]}


def place(record: LedgerMetadata, written: Written) -> Iterator[tuple[str, int]]:
    """Give bookie and ledger for each copy that was acknowledged."""
    for entry in range(len(written.entries)):
        segment = [segment for segment in record.segments if segment.first <= entry][-1]
        for k in range(record.write_quorum):
            yield segment.members[(entry + k) % record.ensemble_size], written.ledger


def test_bookies_of_another_release_are_asked_over_the_wire(old: Old, tmp_path: Path) -> None:
    """Every entry that a bookie which lists has, by lists and last records; one that lists nothing is named."""
    catalog = captured(old, tmp_path / "catalog")
    with open_store(old.uri) as opened:
        members = read_members(opened.store, opened.root, None, {})
    # A bookie that lists nothing is silent until the deadline, twice.
    wanted, deadline_s = (tuple(BOOKIES), 15.0) if SOAK else (LISTING, 60.0)
    request = WireRequest(
        catalog=catalog,
        members=members,
        wanted=wanted,
        options=BookieOptions(deadline_s=deadline_s, patience_s=60),
        passwords=(b"secret",),
    )
    summary = collect_wire(
        request, tmp_path, lambda task, ranges: [task(r) for r in ranges], now=lambda: datetime.now(UTC)
    )
    kinds = {result.bookie: result.kind for result in summary.bookies}
    assert kinds == {bookie: AskedKind.COLLECTED if bookie in LISTING else AskedKind.NO_LISTS for bookie in wanted}
    placed: Counter[tuple[str, int]] = Counter()
    with open_store(old.uri) as opened:
        for written in old.written:
            held = opened.store.get(opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, written.ledger)))
            assert held is not None
            placed.update(place(ledger_record.decode(held.value), written))
    found: Counter[tuple[str, int]] = Counter()
    for result in summary.bookies:
        if result.kind is AskedKind.COLLECTED:
            rows = open_dataset(result.folder, "inventory").read("copies").to_pylist()
            found.update({(result.bookie, row["ledger"]): row["entries"] for row in rows if row["source"] == "wire"})
    assert found == {at: count for at, count in placed.items() if at[0] in LISTING}


def test_its_client_reads_records_that_we_wrote(old: Old) -> None:
    """Taken away and written anew in each format that has all fields: the same record, and every entry."""
    with open_store(old.uri, writable=True) as opened:
        for form in FORMATS:
            for written in old.written:
                before, entries = old.read(written)
                key = opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, written.ledger))
                held = opened.store.get(key)
                assert held is not None
                metadata = replace(ledger_record.decode(held.value), format=form)
                opened.store.write([Write(key, None, expected=held.version)])
                opened.store.write([Write(key, ledger_record.encode(metadata))])
                assert old.read(written) == (before, entries)
                assert metadata.state != "CLOSED" or entries == written.entries


def collected(old: Old, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[Path | str]:
    """Collect every bookie's disks; return the options that name the inventories, and the passwords."""
    passwords = folder / "passwords"
    passwords.write_text("".join(f"{written.password.decode()}\n" for written in old.written))
    passwords.chmod(0o600)
    named: list[Path | str] = ["--passwords", passwords]
    for bookie in BOOKIES:
        disks = ("--ledger-dir", old.home / bookie / "ledgers", "--journal-dir", old.home / bookie / "journal")
        out = folder / bookie
        assert run(capsys, "collect", *disks, "--passwords", passwords, "--out", out).code == 0
        named += ["--inventory", out]
    return named


def test_its_disks_alone_give_the_records_again(old: Old, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Collected beside its running bookies, with no store asked: ends, lengths and segments as its client has them."""
    named = collected(old, tmp_path, capsys)
    proved = [written for written in old.written if written.entries and written.digest != "DUMMY"]
    assert len(proved) > 3
    for written in proved:
        done = run(capsys, "explain", written.ledger, *named, "--layout", "hierarchical", "--json")
        fields = {field["name"]: field["value"] for field in done.result["reconstruction"]["fields"]}
        record, _ = old.read(written)
        assert done.result["outcome"] == "restored", done
        ends = str(len(written.entries) - 1), str(sum(map(len, written.entries)))
        assert (fields["last_entry"], fields["length"]) == ends
        assert fields["digest"] == DIGESTS.get(written.digest, written.digest)
        shape = ("ensemble_size", "write_quorum", "ack_quorum")
        assert [fields[name] for name in shape] == [str(record[name]) for name in shape]
        segments = " ".join(f"{first}:[{','.join(members)}]" for first, members in record["segments"])
        assert fields["segments"] == segments


@pytest.mark.spark
@pytest.mark.skipif(not SOAK, reason="minutes for all releases: scripts/soak peers")
def test_a_whole_disaster_of_another_release(old: Old, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its store lost, its disks collected, reconstructed and applied: its own client reads every entry."""
    for bookie in BOOKIES:
        old.peer("stop", bookie=bookie)
    named = collected(old, tmp_path, capsys)
    with open_store(old.uri, writable=True) as opened:
        for written in old.written:
            key = opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, written.ledger))
            held = opened.store.get(key)
            assert held is not None
            opened.store.write([Write(key, None, expected=held.version)])
    store = ("--metadata", old.uri)
    made = run(capsys, "recover", *named, *store, "--out", tmp_path / "plan", "--json")
    assert made.code in (0, 3), made
    confirmed = open_dataset(tmp_path / "plan", "plan").manifest["hash"]
    assert run(capsys, "apply", tmp_path / "plan", *store, "--confirm", confirmed).code == 0
    for bookie, storage in BOOKIES.items():
        old.peer("start", bookie=bookie, storage=storage)
    with_entries = [written for written in old.written if written.entries]
    read = {written.ledger: old.read(written, recover=True)[1] for written in with_entries}
    assert read == {written.ledger: written.entries for written in with_entries}
