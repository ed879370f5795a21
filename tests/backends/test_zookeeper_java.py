"""Java is the judge of every layout: what it writes is captured as it reads it, and it reads what is applied here."""

import base64
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.write.apply import ApplyOptions, apply
from recovery.capture.live import capture
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.java_metadata import JavaMetadata
from tests.support.plans import action, clock, plan_of
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

IDS: Final = (0, 1, 9_999, 10_000, 2_147_483_646)
LONG_IDS: Final = (2_147_483_647, 2_147_483_648, 12_345_678_901, (1 << 63) - 1)
BOOKIES: Final = ("b1:3181", "b2:3181", "bookie_three")
PULSAR: Final = "pulsar"
LEGACY: Final = "legacyhierarchical"
KINDS: Final = ("flat", LEGACY, "hierarchical", "longhierarchical", PULSAR)
DIGESTS: Final = {"MAC": "HMAC"}
"""Java's names of the API for what records call otherwise."""
_CHROOTS = itertools.count()


def layout_of(kind: str) -> Layout:
    """Return the layout that a kind of cluster has."""
    return Layout.HIERARCHICAL if kind == PULSAR else Layout(kind)


def ids_of(kind: str) -> tuple[int, ...]:
    """Return ids that a layout has a place for, on both sides of every boundary."""
    return IDS if kind == LEGACY else IDS + LONG_IDS


def uris(kind: str, hosts: str) -> tuple[str, str]:
    """Return the URI of a new root as Java takes it, and as it is taken here."""
    chroot = f"/java-{next(_CHROOTS)}"
    if kind == PULSAR:
        return (f"metadata-store:zk:{hosts}{chroot}",) * 2
    # Java takes no name of the legacy layout in a URI, only its LAYOUT.
    java = "null" if kind == LEGACY else kind
    return f"zk+{java}://{hosts}{chroot}", f"zk+{kind}://{hosts}{chroot}"


@pytest.fixture(scope="module")
def bookkeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMetadata]:
    """BookKeeper's own driver."""
    with JavaMetadata(tmp_path_factory.mktemp("bookkeeper") / "log") as java:
        yield java


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMetadata]:
    """Pulsar's driver."""
    with JavaMetadata(tmp_path_factory.mktemp("pulsar") / "log", pulsar=True) as java:
        yield java


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every layout that Java has."""
    return str(request.param)


@pytest.fixture
def java(kind: str, request: pytest.FixtureRequest) -> JavaMetadata:
    """The driver that a kind of cluster is read with."""
    found: JavaMetadata = request.getfixturevalue(PULSAR if kind == PULSAR else "bookkeeper")
    return found


def captured(uri: str, folder: Path) -> Dataset:
    """Capture a store as the command does."""
    with open_store(uri) as opened, DatasetWriter(folder, "catalog", binding={}, secret=True) as out:
        named = Layout(opened.layout_hint) if opened.layout_hint else None
        summary = capture(opened.store, opened.root, named, out, clock=clock())
    assert summary.complete, summary.gaps
    return open_dataset(folder, "catalog")


def as_java_has_it(row: Mapping[str, Any], password: bytes) -> dict[str, Any]:
    """Return a catalog's row in the words of the Java driver; the catalog shows no password outside the raw bytes."""
    assert password in row["raw"]
    return {
        "ledger": row["ledger"],
        "state": row["state"],
        "ensemble_size": row["ensemble_size"],
        "write_quorum": row["write_quorum"],
        "ack_quorum": row["ack_quorum"],
        "last_entry": -1 if row["state"] != "CLOSED" else row["last_entry"],
        "length": 0 if row["state"] != "CLOSED" else row["length"],
        "digest": {name: api for api, name in DIGESTS.items()}.get(row["digest"], row["digest"]),
        "password": base64.b64encode(password).decode(),
        "segments": [[segment["first"], segment["members"]] for segment in row["segments"]],
        "custom": {entry["key"]: base64.b64encode(entry["value"]).decode() for entry in row["custom"] or ()},
    }


def test_what_java_writes_is_captured(
    kind: str, java: JavaMetadata, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Ledgers of every length of id, open and closed, cookies, marks and the instance id: as Java reads them."""
    theirs, ours = uris(kind, zookeeper_server.hosts)
    if kind == LEGACY:
        with open_store(ours, writable=True) as opened:
            values = {store.LAYOUT: store.layout_bytes(Layout.LEGACY), store.INSTANCE_ID: b"made-here"}
            values[store.READ_ONLY] = b""
            opened.store.write([Write(opened.root + key, value) for key, value in values.items()])
    java("open", uri=theirs, init=kind != LEGACY)
    first = java("next_id")
    for n, ledger in enumerate(ids_of(kind)):
        closed: dict[str, Any] = {"last": n * 7, "length": n * 100 + 1} if n % 2 else {}
        digest = ("CRC32C", "CRC32", "MAC", "DUMMY")[n % 4]
        java("create", ledger=ledger, members=BOOKIES[: 1 + n % 3], W=1, A=1, digest=digest, password=b"pw", **closed)
    java("cookie", bookie="b1:3181", value=b'5\nbookieHost: "b1:3181"\n')
    java("mark", ledger=9_999, bookie="b2:3181")
    listed = {row["ledger"]: row for row in java("list")}
    assert sorted(listed) == sorted(ids_of(kind))

    catalog = captured(ours, tmp_path / "catalog")
    rows = {row["ledger"]: as_java_has_it(row, b"pw") for row in catalog.read("ledgers").to_pylist()}
    assert rows == listed
    assert {row["acl"] for row in catalog.read("ledgers").to_pylist()} == {"world:anyone:cdrwa"}
    nodes = {row["path"]: row for row in catalog.read("nodes").to_pylist()}
    assert nodes["/cookies/b1:3181"]["raw"] == base64.b64decode(java("read_cookie", bookie="b1:3181"))
    marks = [path for path, row in nodes.items() if row["kind"] == "mark"]
    assert marks == ["/underreplication/ledgers/0000/0000/0000/270f/urL0000009999"]
    assert b'replica: "b2:3181"' in nodes[marks[0]]["raw"]
    [source] = catalog.read("sources").to_pylist()
    assert source["instance_id"] == java("instance_id")
    assert source["layout"] == layout_of(kind)
    generator = nodes[store.generator_key(layout_of(kind))]
    assert generator["children_created"] > first
    assert java("next_id") == generator["children_created"]


def record(n: int) -> bytes:
    """Return the record of a ledger that is closed and changed its ensemble."""
    segments: Sequence[Segment] = (Segment(0, ("b1:3181", "b2:3181")), Segment(5, ("b1:3181", "bookie_three")))
    return ledger_metadata.encode(
        LedgerMetadata(
            3, 2, 2, 2, LedgerState.CLOSED, 9 + n, 1_000, tuple(segments), Digest.CRC32C, b"secret", creator_token=0
        )
    )


def test_java_reads_what_is_applied(
    kind: str, java: JavaMetadata, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """A cluster that never was, applied from a plan: Java reads every ledger, and gives unused ids."""
    theirs, ours = uris(kind, zookeeper_server.hosts)
    layout = layout_of(kind)
    rows = [
        action("generator", "raise", store.generator_key(layout), b"1234"),
        *(
            action("ledger", "create", store.ledger_key(layout, LedgerId(0, ledger)), record(n))
            for n, ledger in enumerate(ids_of(kind))
        ),
        action("node", "create", store.READ_ONLY, b""),
        action("layout", "create", store.LAYOUT, store.layout_bytes(layout)),
        action("instance_id", "create", store.INSTANCE_ID, b"d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40"),
        action("cookie", "create", "/cookies/b1:3181", b"5\ncookie"),
    ]
    with open_store(ours, writable=True) as opened:
        result = apply(lambda: [plan_of(rows)], opened.store, opened.root, tmp_path, ApplyOptions("hash"), now=clock())
        mark = f"{store.MARKS}/0000/0000/0000/0001/urL0000000001"
        opened.store.write([Write(opened.root + mark, b'replica: "b2:3181"\nctime: 1700000000000\n')])
    assert result.exit_code == 0

    java("open", uri=theirs.replace(f"zk+{kind}", "zk+null"))
    found = {row["ledger"]: row for row in java("list")}
    assert sorted(found) == sorted(ids_of(kind))
    for n, ledger in enumerate(ids_of(kind)):
        assert found[ledger] == {
            "ledger": ledger,
            "state": "CLOSED",
            "ensemble_size": 2,
            "write_quorum": 2,
            "ack_quorum": 2,
            "last_entry": 9 + n,
            "length": 1_000,
            "digest": "CRC32C",
            "password": base64.b64encode(b"secret").decode(),
            "segments": [[0, ["b1:3181", "b2:3181"]], [5, ["b1:3181", "bookie_three"]]],
            "custom": {},
        }
    assert java("instance_id") == "d1a6f3b2-0c6e-4a57-9a5b-5d0d1c2e3f40"
    assert base64.b64decode(java("read_cookie", bookie="b1:3181")) == b"5\ncookie"
    assert java("next_id") > 1_234
    # A change by Java over our version, and a removal, are taken.
    java("remove", ledger=1)
    assert sorted(row["ledger"] for row in java("list")) == sorted(set(ids_of(kind)) - {1})
    assert java("marks") == {"1": ["b2:3181"]}
