"""What the store alone shows is read again before it is reported, and is not reported for marked ledgers."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from backends.protocols import Write
from backends.registry import open_store
from reconcile.jobs.capture import capture_store
from reconcile.jobs.scrutiny import scrutinize as job
from reconcile.jobs.scrutiny.first_look import write_first_look
from recovery.codecs.keys import mark_keys
from recovery.codecs.store import AVAILABLE, COOKIES, Layout, layout_bytes, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.deletes import Ledger, fill_zookeeper, make_cookie, name_looks, write_looks
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(6))
GONE, MARKED, CHANGED, MARKED_BEFORE = 1, 2, 3, 4
RESTARTED = "bk9:3181"
"""A bookie that no ledger names."""


def test_what_stood_once_is_not_reported(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are against the policy: one is deleted, one marked, one written between the looks; one is marked anyway."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    record = {number: root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number)) for number in range(6)}
    marks = {n: root + mark_keys(*(pa.array([half]).to_numpy() for half in (0, n)))[0] for n in (MARKED, MARKED_BEFORE)}
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(marks[MARKED_BEFORE], b"")])
    looks = write_looks(tmp_path / "looks", LEDGERS)
    (tmp_path / "racks").write_text("".join(f"bk{n}:3181 /region/rack\n" for n in range(1, 9)))
    (tmp_path / "policy").write_text("enforceMinNumRacksPerWriteQuorum=true\n")

    def go_on(*arguments: Any) -> None:
        write_first_look(*arguments)
        with open_store(uri, writable=True) as opened:
            nodes = {number: opened.store.get(record[number]) for number in (GONE, CHANGED)}
            for number, node in nodes.items():
                assert node is not None
                opened.store.write([Write(record[number], None if number == GONE else node.value, node.version)])
            opened.store.write([Write(marks[MARKED], b"")])

    monkeypatch.setattr(job, "write_first_look", go_on)
    done = run(
        capsys, "scrutinize", "--metadata", uri, *name_looks(looks),
        "--topology", tmp_path / "racks", "--placement", tmp_path / "policy", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.code == 3, done.err
    seen = open_dataset(tmp_path / "run", "scrutiny")
    found = {row["ledger"] for row in seen.read("findings").to_pylist() if row["category"] == "PLACEMENT_VIOLATED"}
    assert found == {0, 5}
    verdicts = {row["ledger"]: (row["verdict"], row["reason"]) for row in seen.read("verdicts").to_pylist()}
    assert {number: verdicts[number] for number in (GONE, MARKED, CHANGED, MARKED_BEFORE)} == {
        GONE: ("skipped", "gone"), MARKED: ("skipped", "marked"), CHANGED: ("undecided", "changed"),
        MARKED_BEFORE: ("skipped", "marked"),
    }  # fmt: skip
    assert done.result["counts"]["rechecked"] == 5


@pytest.mark.parametrize("is_back", [True, False])
def test_nodes_that_differed_once_are_not_reported(
    is_back: bool,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A layout that was another, a cookie of another cluster, a bookie without a cookie, and one that restarted.

    All are read again, and right by then or not.
    """
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    odd = {
        "/LAYOUT": layout_bytes(Layout.HIERARCHICAL).replace(b":1", b":2"),
        f"{COOKIES}/bk1:3181": make_cookie("bk1:3181")
        + b'journalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "of another cluster"\n',
        f"{COOKIES}/bk2:3181": None,
        f"{AVAILABLE}/{RESTARTED}": None,
    }

    def put(nodes: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
        """Write or remove nodes; return what they were."""
        were: dict[str, bytes | None] = {}
        with open_store(uri, writable=True) as opened:
            for path, value in nodes.items():
                node = opened.store.get(root + path)
                were[path] = None if node is None else node.value
                opened.store.write([Write(root + path, value, None if node is None else node.version)])
        return were

    put({f"{COOKIES}/{RESTARTED}": make_cookie(RESTARTED), f"{AVAILABLE}/{RESTARTED}": b""})
    looks = write_looks(tmp_path / "looks", LEDGERS)
    words = ("scrutinize", "--metadata", uri, *name_looks(looks), "--json")
    before = run(capsys, *words, "--out", tmp_path / "before")
    kept = put(odd)

    def go_on(*arguments: Any) -> None:
        write_first_look(*arguments)
        if is_back:
            put(kept)

    monkeypatch.setattr(job, "write_first_look", go_on)
    done = run(capsys, *words, "--since", tmp_path / "before", "--out", tmp_path / "run")
    # The registration has no session here: without it, that is no finding.
    same = set(before.result["found"]) - {"DEAD_REGISTRATION"}
    odd_ones = {"LAYOUT_DIFFERS", "INSTANCE_ID_DIFFERS", "COOKIE_DIFFERS", "BOOKIE_WITHOUT_COOKIE"}
    assert set(done.result["found"]) == same | (set() if is_back else odd_ones | {"COOKIE_WITHOUT_BOOKIE"})
    assert "COOKIE_WITHOUT_BOOKIE" not in same


@pytest.mark.parametrize("is_back", [True, False])
def test_a_part_that_could_not_be_read_once_is_read_again(
    is_back: bool,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder that may not be listed in the first capture: the list is incomplete if the second one lacks it, too."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, (*LEDGERS, replace(LEDGERS[0], id=LedgerId(0, 10**8))))
    key = f"{root}/01"
    owner = KazooClient(zookeeper_server.hosts, auth_data=[("digest", "owner:secret")])
    owner.start()
    owner.set_acls(key, [make_digest_acl("owner", "secret", all=True)])

    def capture_and_allow(*arguments: Any, **options: Any) -> Any:
        done = capture_store(*arguments, **options)
        if is_back:
            owner.set_acls(key, OPEN_ACL_UNSAFE)
        return done

    monkeypatch.setattr(job, "capture_store", capture_and_allow)
    looks = write_looks(tmp_path / "looks", LEDGERS)
    words = ("scrutinize", "--metadata", uri, *name_looks(looks), "--json")
    done = run(capsys, *words, "--out", tmp_path / "run")
    owner.stop()
    owner.close()
    assert ("LISTING_INCOMPLETE" in done.result["found"]) is not is_back
    assert open_dataset(tmp_path / "run" / "store", "catalog").manifest["coverage"]["complete"] is is_back
