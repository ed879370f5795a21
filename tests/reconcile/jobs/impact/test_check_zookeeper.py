"""The impact check of a live ZooKeeper: who is registered, what re-replicates, and captures one after another."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.check.impact.answer import ImpactAnswer
from reconcile.check.impact.names import DomainLevel
from reconcile.jobs.impact.check import check_impact
from reconcile.jobs.impact.question import ImpactRequest, Taken
from recovery.codecs.ledger_record import encode
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.impact_question import make_context
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

BOOKIES = tuple(f"bk{number}:3181" for number in range(1, 6))
A, B, C, D, E = BOOKIES
_ROOTS = itertools.count()


def make_record(*members: str) -> bytes:
    """A ledger with ten entries on all of its members."""
    count, segments = len(members), (Segment(0, members),)
    return encode(LedgerMetadata(3, count, count, 1, LedgerState.CLOSED, 9, 1000, segments, Digest.CRC32C, b"pw", 1))


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer) -> str:
    """Five bookies: one is read only, one is away; two ledgers; Pulsar's rack information beside the root."""
    above = f"/impact-{next(_ROOTS)}"
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{above}/ledgers"
    nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"one", "/available/readonly": b""}
    nodes |= {f"/cookies/{name}": b"cookie" for name in BOOKIES}
    nodes |= {f"/available/{name}": b"" for name in (A, B, C)} | {f"/available/readonly/{D}": b""}
    nodes |= {
        "/underreplication/disable": b"",
        "/underreplication/auditorelection/V_0000000001": b'bookieId: "bk2:3181"\n',
    }
    ledgers = {1: make_record(A, B), 2: make_record(D, E)}
    nodes |= {ledger_key(Layout.HIERARCHICAL, LedgerId(0, number)): raw for number, raw in ledgers.items()}
    racks = {"default": {name: {"rack": f"/r{number // 2}"} for number, name in enumerate(BOOKIES)}}
    with open_store(uri, writable=True) as opened:
        opened.store.write([Write(opened.root + key, value) for key, value in nodes.items()])
        opened.store.write([Write(f"{above}/bookies", json.dumps(racks).encode())])
    return uri


def ask(uri: str, cache: Path, *taken: str, minutes: float = 0, **more: Any) -> ImpactAnswer:
    """Ask a live store, so many minutes later than it is."""
    request = ImpactRequest(uri=uri, cache=cache, taken=Taken((taken,) if taken else ()), most_unavailable=100, **more)
    return check_impact(request, make_context(lambda: datetime.now(UTC) + timedelta(minutes=minutes)))


def test_registrations_of_a_live_store_are_believed(uri: str, tmp_path: Path) -> None:
    """Read only, and away, before anything is taken: the ledger on both has one copy left, which the next loses."""
    answer = ask(uri, tmp_path, A)
    assert answer.states == {"read-write": 3, "read-only": 1, "down": 1, "gone": 0, "unrecoverable": 0}
    assert (answer.replication.disabled, answer.replication.auditor) == (True, B)
    assert answer.replication.candidates == (B,)
    assert (str(answer.verdict), answer.cache.alive, answer.now.impacts) == ("SAFE", True, {})
    lost = ask(uri, tmp_path, D)
    assert lost.sets[0].caused == ("READ_AVAILABILITY_LOSS", "REBUILDING_STALL")
    assert [(one.bookie, one.before, one.after) for one in lost.sample[0].members] == [
        (D, "read-only", "down"), (E, "down", "down")
    ]  # fmt: skip


def test_rack_information_of_pulsar_says_where_bookies_stand(uri: str, tmp_path: Path) -> None:
    """Without a topology file: the ledger on one rack goes with it."""
    drill = ask(uri, tmp_path, drill=DomainLevel.RACK).drill
    assert {one.label: str(one.verdict) for one in drill} == {"/r0": "UNSAFE", "/r1": "UNSAFE", "/r2": "SAFE"}
    assert [one.bookies for one in drill] == [(A, B), (C, D), (E,)]


def test_a_bookie_that_stopped_since_the_capture_counts_as_down(uri: str, tmp_path: Path) -> None:
    """Records are ten minutes old at most; who is registered, and whether re-replication runs, is of now."""
    assert str(ask(uri, tmp_path, A).verdict) == "SAFE"
    with open_store(uri, writable=True) as opened:
        for key in (f"/available/{B}", "/underreplication/disable"):
            held = opened.store.get(opened.root + key)
            assert held is not None
            opened.store.write([Write(opened.root + key, None, held.version)])
    answer = ask(uri, tmp_path, A)
    assert not answer.cache.is_fresh
    assert (str(answer.verdict), answer.states["down"]) == ("UNSAFE", 2)
    assert answer.sets[0].caused == ("READ_AVAILABILITY_LOSS", "REBUILDING_STALL")
    assert not answer.replication.disabled


def test_a_capture_is_used_again_and_several_in_a_row_are_not(uri: str, tmp_path: Path) -> None:
    """Ten minutes long; to be stable each question has a capture of its own, and the first that is unsafe ends it."""
    first = ask(uri, tmp_path, A)
    again = ask(uri, tmp_path, A, minutes=9)
    assert (first.cache.is_fresh, again.cache.is_fresh, again.cache.path) == (True, False, first.cache.path)
    assert again.cache.age_s > first.cache.age_s + 500
    stable = ask(uri, tmp_path, A, minutes=9, stable_for=3)
    assert (stable.stable, stable.cache.is_fresh) == (3, True)
    assert stable.cache.path != first.cache.path
    unsafe = ask(uri, tmp_path, D, minutes=9, stable_for=3, out=tmp_path / "out")
    assert (str(unsafe.verdict), unsafe.stable) == ("UNSAFE", 0)
    assert (tmp_path / "out" / "manifest.json").exists()
