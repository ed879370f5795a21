"""A real cluster's bookies brought back into a real etcd, and ledgers of all scopes there and in ZooKeeper alike."""

import base64
import itertools
import os
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.errors import GuardRefusedError, PartlyAppliedError
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.audit_journal import JOURNAL
from reconcile.write.guards import require_stopped
from recovery.capture.live import capture
from recovery.codecs import ledger_record, store
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from tests.support.cases import case_dir, truth
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import action, clock, lines_after, plan_of

CASE = "c01-clean-sorted"
PATIENCE_S = 60
KILLS = int(os.environ.get("BKMETA_SOAK_KILLS", "3"))
_ROOTS = itertools.count()

pytestmark = [pytest.mark.real]


@pytest.fixture
def uri(etcd_server: EtcdServer) -> str:
    """Return the URI of a root that is not there yet, two levels deep."""
    return f"etcd://{etcd_server.hosts}/restore-{next(_ROOTS)}/c1"


def root_of(uri: str) -> str:
    """Return the key of the root."""
    return "/" + uri.split("/", 3)[3]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_lost_ledgers_come_back_into_etcd(
    etcd_server: EtcdServer, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From disks to etcd by the program's own commands: records, cookies, generators; entries are read through them."""
    inventories: list[str] = []
    disks: list[str] = []
    for bookie in truth(CASE)["bookies"]:
        folder = case_dir(CASE) / "bookies" / f"b{bookie['n']}"
        out = tmp_path / f"b{bookie['n']}"
        done = run(
            capsys, "collect", "--ledger-dir", folder / "ledgers", "--journal-dir", folder / "journal", "--out", out
        )
        assert done.code == 0
        inventories += ["--inventory", str(out)]
        disks += ["--disk", f"{bookie['id']}={folder}"]
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    passwords.write_text("".join(f"{password}\n" for password in truth(CASE)["passwords"]))
    plan = tmp_path / "plan"
    made = run(capsys, "recover", *inventories, "--metadata", uri, "--passwords", passwords, "--out", plan, "--json")
    assert made.code in (0, 4), made.err
    digest = open_dataset(plan, "plan").manifest["hash"]
    rehearsal = f"etcd://{etcd_server.hosts}/rehearsal-{root_of(uri)[1:]}"
    assert run(capsys, "rehearse", plan, "--metadata", rehearsal, *disks).code == 0
    assert run(capsys, "rehearse", plan, "--metadata", rehearsal, "--remove").code == 0
    assert etcd_server.dump(root_of(rehearsal)) == {}
    assert run(capsys, "freeze", "--metadata", uri).code == 5
    assert run(capsys, "apply", plan, "--metadata", uri, "--confirm", digest).code == 0
    assert run(capsys, "verify", plan, "--metadata", uri, "--sample", "all", *disks).code == 0
    held = {key.removeprefix(root_of(uri)): value for key, value in etcd_server.dump(root_of(uri)).items()}
    wanted = {
        store.ledger_key(Layout.ETCD, LedgerId(0, row["ledger"])): row for row in truth(CASE)["ledgers"] if row["raw"]
    }
    planned = open_dataset(plan, "plan").read("actions").to_pylist()
    assert {row["key"]: row["value"] for row in planned if row["op"] == "create"}.items() <= held.items()
    restored = {key for key in held if key.startswith("/ledgers/")}
    assert restored <= set(wanted)
    assert len(restored) == open_dataset(plan, "plan").manifest["counts"]["restored"] > 20
    for key in restored:
        was, now = (ledger_record.read(raw).metadata for raw in (base64.b64decode(wanted[key]["raw"]), held[key]))
        assert (was.last_entry, was.length, was.state) == (now.last_entry, now.length, now.state)
    assert set(store.places(Layout.ETCD).folders) <= set(held)
    assert held["/layout"] == store.layout_bytes(Layout.ETCD)
    assert held["/instanceid"].decode() == truth(CASE)["instance_id"]
    assert sum(key.startswith("/cookies/") for key in held) == len(truth(CASE)["bookies"])
    assert held[""] == b""
    with open_store(uri) as opened:
        bucket = opened.store.get(root_of(uri) + "/buckets/000")
        assert bucket is not None
        assert (bucket.children_created or 0) > max(row["ledger"] for row in truth(CASE)["ledgers"])
    explained = run(capsys, "explain", "3", "--metadata", uri, *inventories, "--json")
    assert explained.code == 0, explained.err
    etcd_server.put(f"{root_of(uri)}/bookies/writable/10.0.0.1:3181")
    refused = run(capsys, "apply", plan, "--metadata", uri, "--confirm", digest, "--resume")
    assert refused.code == 5
    assert "stop them until apply has ended" in refused.err
    assert run(capsys, "capture", "--metadata", uri, "--out", tmp_path / "catalog", "--json").code == 0


def test_an_apply_that_is_killed_is_gone_on_with(etcd_server: EtcdServer, uri: str, tmp_path: Path) -> None:
    """Ended anywhere and resumed, a restore leaves what an undisturbed one does; buckets may be raised further."""
    rows = [
        action("generator", "raise", "/buckets/007", b"200"),
        *(
            action("ledger", "create", store.ledger_key(Layout.ETCD, LedgerId(n % 2, 7 << 56 | n)), b"record %d" % n)
            for n in range(1, 50 * KILLS)
        ),
        *(action("node", "create", key, b"") for key in store.places(Layout.ETCD).folders if key != "/ledgers"),
        action("layout", "create", "/layout", store.layout_bytes(Layout.ETCD)),
        action("instance_id", "create", "/instanceid", b"1c0b"),
        action("cookie", "create", "/cookies/b1:3181", b"cookie"),
    ]
    table = plan_of([row for row in rows if row["key"] != "/buckets"])
    pq.write_table(table, tmp_path / "plan.parquet")
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(WORKER),
        uri,
        str(tmp_path / "plan.parquet"),
        str(tmp_path / "j"),
    ]
    seen = offset = 0
    for round_ in range(KILLS):
        running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while running.poll() is None and seen <= 12 * (round_ + 1):
                added, offset = lines_after(tmp_path / "j" / JOURNAL, offset)
                seen += added
                with suppress(subprocess.TimeoutExpired):
                    running.wait(timeout=0.001)
        finally:
            running.kill()
            running.wait()
    subprocess.run(arguments, check=True, timeout=PATIENCE_S * 3)
    held = etcd_server.dump(root_of(uri))
    assert {key: held[root_of(uri) + key] for key in table["key"].to_pylist() if "/buckets/" not in key} == {
        row["key"]: row["value"] for row in table.to_pylist() if row["kind"] != "generator"
    }
    with open_store(uri) as opened:
        bucket = opened.store.get(root_of(uri) + "/buckets/007")
        assert bucket is not None
        assert (bucket.children_created or 0) > 200


def test_a_store_that_is_full_says_so_and_is_gone_on_with(tmp_path: Path) -> None:
    """Its quota is used up midway: the error says what to do, and after that the same command ends the restore."""
    rows = [
        action("ledger", "create", store.ledger_key(Layout.ETCD, LedgerId(0, n)), bytes(40_000)) for n in range(800)
    ]
    home = tmp_path / "etcd"
    home.mkdir()
    small = EtcdServer(home, "--quota-backend-bytes", str(5 << 20))
    larger = EtcdServer(home, data=small.data)

    def restore(server: EtcdServer, *, resume: bool) -> None:
        with open_store(f"etcd://{server.hosts}/c1", writable=True) as opened:
            apply(
                lambda: [plan_of(rows)],
                opened.store,
                opened.root,
                tmp_path / "journal",
                ApplyOptions("hash", resume=resume, batch_rows=20),
                now=clock(),
            )

    small.start()
    try:
        with pytest.raises(PartlyAppliedError, match=r"its space is used up.*quota-backend-bytes") as raised:
            restore(small, resume=False)
        assert "had no answer" not in str(raised.value)
        before = len(small.dump("/c1/ledgers/"))
        assert 0 < before < len(rows)
    finally:
        small.kill()
    larger.port = small.port
    larger.start()
    try:
        larger.etcdctl("alarm", "disarm")
        restore(larger, resume=True)
        assert len(larger.dump("/c1/ledgers/")) == len(rows)
    finally:
        larger.kill()


WORKER = """
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    import pyarrow.parquet as pq
    from backends.registry import open_store
    from reconcile.write.apply import ApplyOptions, apply

    uri, plan, journal = sys.argv[1:]
    table = pq.read_table(plan)
    with open_store(uri, writable=True) as opened:
        options = ApplyOptions("hash", resume=True, batch_rows=5)
        apply(lambda: [table], opened.store, opened.root, Path(journal), options,
              now=lambda: datetime.now(UTC))
    """


def captured(opened: Any, root: str, layout: Layout, out: Path) -> pa.Table:
    """Return the ledgers of a store."""
    with DatasetWriter(out, "catalog", binding={}, secret=True) as writer:
        summary = capture(opened, root, layout, writer, clock=lambda: datetime.now(UTC))
    assert summary.complete
    names = ["scope", "ledger", "raw", "state", "ensemble_size", "last_entry", "error"]
    return (
        open_dataset(out, "catalog")
        .read("ledgers", columns=names)
        .sort_by([("scope", "ascending"), ("ledger", "ascending")])
    )


def test_ledgers_of_all_scopes_are_the_same_in_both_stores(uri: str, tmp_path: Path) -> None:
    """128-bit ids: the same records in the LongLong tree and under etcd's combined keys compare equal."""
    raws = [base64.b64decode(row["raw"]) for row in truth(CASE)["ledgers"] if row["raw"]]
    ids = [LedgerId(0, n) for n in (0, 1, 2147483647, (1 << 63) - 2)]
    ids += [LedgerId(scope, n) for scope in (1, 7, (1 << 63) - 1, -1, -(1 << 63)) for n in (0, 5, (1 << 63) - 1, -1)]
    tree = MemoryStore()
    rows = [
        action("ledger", "create", store.ledger_key(Layout.ETCD, id_), raws[n % len(raws)]) for n, id_ in enumerate(ids)
    ]
    for n, id_ in enumerate(ids):
        tree.write([Write("/ledgers" + store.ledger_key(Layout.LONGLONGHIERARCHICAL, id_), raws[n % len(raws)])])
    with open_store(uri, writable=True) as opened:
        apply(
            lambda: [plan_of(rows)], opened.store, opened.root, tmp_path / "journal", ApplyOptions("hash"), now=clock()
        )
        ours = captured(opened.store, opened.root, Layout.ETCD, tmp_path / "etcd")
    theirs = captured(tree, "/ledgers", Layout.LONGLONGHIERARCHICAL, tmp_path / "tree")
    assert ours.num_rows == len(ids)
    assert ours.equals(theirs)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who runs the tests may have set some."""
    for name in ("BKMETA_ETCD_AUTH", "BKMETA_TLS_CA"):
        monkeypatch.delenv(name, raising=False)


def test_a_plan_for_zookeeper_is_not_written_to_etcd(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], etcd_server: EtcdServer
) -> None:
    """Keys of one kind of store never get into the other, and rights that etcd does not have are not passed over."""
    root = root_of(uri)
    for layout, more, word in (
        (Layout.HIERARCHICAL, (), "layout hierarchical"),
        (Layout.ETCD, ("--acl", "world:anyone:cdrwa"), "rights to users"),
    ):
        plan = write_plan(tmp_path / layout, [Ledger(1, [(0, ["b1"])], (1, 1, 1))], layout=layout, root=root)
        confirm = ("--confirm", plan.manifest["hash"])
        refused = run(capsys, "apply", tmp_path / layout, "--metadata", uri, *confirm, *more)
        assert (refused.code, word in refused.err) == (5, True), refused.err
        assert etcd_server.dump(root) == {}
    refused = run(capsys, "rehearse", tmp_path / "hierarchical", "--metadata", f"{uri}-rehearsal")
    assert (refused.code, "layout hierarchical" in refused.err) == (5, True)


def test_a_bookie_that_answers_is_not_stopped() -> None:
    """Registered or not, a bookie that answers at its address stops an apply to etcd; nobody else does."""
    frame = bytes.fromhex("0000000a 0a08 0803 1008 1801 1000")
    replies = (frame, b"HTTP/1.1 400 Bad Request", b"\0")

    def serve(listening: socket.socket, reply: bytes) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(100)
            connection.sendall(reply)

    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in replies]
        away = stack.enter_context(socket.socket())
        away.bind(("127.0.0.1", 0))
        for one, reply in zip(listening, replies, strict=True):
            threading.Thread(target=serve, args=(one, reply), daemon=True).start()
        running, *others = (f"127.0.0.1:{one.getsockname()[1]}" for one in (*listening, away))
        with pytest.raises(GuardRefusedError, match=running) as refused:
            require_stopped([running, *others, "a-name"])
        assert "1 bookie is" in str(refused.value)
        require_stopped(["a-name"])
