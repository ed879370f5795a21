"""Plans applied to a real ZooKeeper, by processes that are killed."""

import itertools
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kazoo.client import KazooClient

from backends.errors import OutcomeUnknownError
from backends.protocols import Write
from backends.registry import open_store
from backends.zookeeper.store import ZooKeeperStore
from reconcile.plan.edits import Edits, edit_plan
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.apply_results import Applied
from reconcile.write.audit_journal import JOURNAL, JournalLine, scan
from recovery.codecs.replication_lock import encode_guard
from tests.support.command import run as command
from tests.support.failing_stores import Fault, FaultyStore
from tests.support.plan_folder import Ledger, write_plan
from tests.support.plans import action, clock, lines_after, plan_of, restore_of
from tests.support.zookeeper_server import ZooKeeperServer

_ROOTS = itertools.count()
KILLS = int(os.environ.get("BKMETA_SOAK_KILLS", "10"))

pytestmark = [pytest.mark.long, pytest.mark.real]

WORKER = """
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    import pyarrow.parquet as pq
    from backends.protocols import Write
    from backends.registry import open_store
    from reconcile.write.apply import ApplyOptions, apply

    uri, plan, journal = sys.argv[1:]
    table = pq.read_table(plan)
    with open_store(uri, writable=True) as opened:
        options = ApplyOptions("hash", resume=True, batch_rows=5)
        apply(lambda: [table], opened.store, opened.root, Path(journal), options,
              now=lambda: datetime.now(UTC))
    """


@pytest.fixture
def uri(zookeeper_server: ZooKeeperServer) -> str:
    """Return the URI of a root that is not there yet, two levels deep."""
    return f"zk+hierarchical://{zookeeper_server.hosts}/cluster-{next(_ROOTS)}/ledgers"


@pytest.fixture
def raw(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Return a plain client of another program."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def run(uri: str, ledgers: int, journal: Path) -> Applied:
    """Apply a restore."""
    table = plan_of(restore_of(ledgers))
    with open_store(uri, writable=True) as opened:
        return apply(lambda: [table], opened.store, opened.root, journal, ApplyOptions("hash"), now=clock())


def contents(client: KazooClient, root: str) -> dict[str, tuple[bytes, int]]:
    """Return value and version of every node with a value, as another program sees them."""
    found = {}
    todo = [root]
    while todo:
        key = todo.pop()
        value, stat = client.get(key)
        if value:
            found[key.removeprefix(root)] = (value, stat.version)
        todo += [f"{key}/{name}" for name in client.get_children(key)]
    return found


def root_of(uri: str) -> str:
    """Return the path of a URI."""
    return "/" + uri.split("/", 3)[3]


def wanted(ledgers: int) -> dict[str, tuple[bytes, int]]:
    """Return what a restore leaves behind."""
    return {row["key"]: (row["value"], 0) for row in restore_of(ledgers) if row["op"] != "raise" and row["value"]}


def test_another_program_sees_the_plan(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """Every record is there with the plan's bytes, never changed since its creation, and the next id is unused."""
    result = run(uri, 1_050, tmp_path)
    assert result.exit_code == 0
    assert contents(raw, root_of(uri)) == wanted(1_050)
    assert raw.create(f"{root_of(uri)}/idgen/ID-", sequence=True).endswith("/ID-0000001235")


@pytest.mark.timeout(7200)
def test_killed_again_and_again(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """A process that is killed with -9 wherever it is, and started again, ends as one that never was."""
    ledgers = 10_000 if KILLS >= 100 else 50 * KILLS
    rows = [
        {**row, "ledger": n, "guard": "lock" if n % 3 == 1 and row["op"] == "create" else None}
        if row["kind"] == "ledger"
        else row
        for n, row in enumerate(restore_of(ledgers), -1)
    ]
    pq.write_table(plan_of(rows), tmp_path / "plan.parquet")
    command = [sys.executable, "-c", textwrap.dedent(WORKER), uri, str(tmp_path / "plan.parquet"), str(tmp_path / "j")]
    journal = tmp_path / "j" / JOURNAL
    # Two lines a batch of five, two for its locks, and some a run.
    step = 4 * ledgers // 5 // KILLS + 2
    kills = seen = offset = 0
    for lines in itertools.count(3, step):
        with subprocess.Popen(command) as process:
            # Killed as soon as the journal has grown by so much; what it does then is up to chance.
            while seen < lines:
                added, offset = lines_after(journal, offset)
                seen += added
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.001)
                    break
            if process.poll() is None:
                process.kill()
                kills += 1
                continue
        assert process.returncode == 0
        break
    assert kills >= KILLS // 2
    locks = {row["key"]: f"/underreplication/locks/urL{row['ledger']:010d}" for row in rows if row.get("guard")}
    assert len(locks) > ledgers // 4
    value = encode_guard("hash")
    assert contents(raw, root_of(uri)) == wanted(ledgers) | dict.fromkeys(locks.values(), (value, 0))
    made = {key: raw.exists(root_of(uri) + key) for pair in locks.items() for key in pair}
    assert all(made[lock].czxid < made[record].czxid for record, lock in locks.items())
    assert not any(made[lock].ephemeralOwner for lock in locks.values())
    records = [record for record in scan(journal) if isinstance(record, JournalLine)]
    assert sum(record.event == "resume" for record in records) >= kills - 1
    end = records[-1].fields["counts"]
    assert all(planned == written + there and not conflicts for planned, written, there, conflicts, _ in end.values())


def test_a_lost_answer_over_the_wire(
    uri: str, raw: KazooClient, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Answers that are lost after the server has written are resolved by reading back."""
    table = plan_of(restore_of(250))
    lost = Fault(OutcomeUnknownError("zk", "cut"), after=True)

    class Cut(FaultyStore):
        """Every write is made, and none is answered."""

        def write(self, changes: object) -> list[int]:
            self._faults = lambda _: lost
            try:
                return super().write(changes)  # type: ignore[arg-type]  # passed on as it came
            finally:
                self._faults = lambda _: None

    store = ZooKeeperStore(zookeeper_server.hosts)
    options = ApplyOptions("hash", in_flight=1)
    result = apply(lambda: [table], Cut(store, lambda _: None), root_of(uri), tmp_path, options, now=clock())
    store.close()
    assert result.exit_code == 0
    assert all(tally.written == tally.planned for tally in result.tallies.values())
    assert contents(raw, root_of(uri)) == wanted(250)


def test_what_stands_there_is_left_alone(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """A record of somebody else keeps its bytes and version, is named, and keeps the cookies back."""
    other = f"{root_of(uri)}/00/0000/L0042"
    raw.create(other, b"first", makepath=True)
    raw.set(other, b"somebody's")
    result = run(uri, 250, tmp_path)
    assert result.exit_code == 6
    assert [conflict.key for conflict in result.conflicts] == ["/00/0000/L0042"]
    kept = {key: entry for key, entry in wanted(250).items() if not key.startswith("/cookies/")}
    assert contents(raw, root_of(uri)) == {**kept, "/00/0000/L0042": (b"somebody's", 1)}


def test_a_replacement_on_a_real_server(uri: str, raw: KazooClient, tmp_path: Path) -> None:
    """A record is replaced and another removed at the versions that the plan saw."""
    root = root_of(uri)
    for name in ("a", "b", "c"):
        raw.create(f"{root}/{name}", b"old", makepath=True)
    raw.set(f"{root}/b", b"newer")
    rows = [
        action("ledger", "replace", "/a", b"good", expects=0, before=b"old"),
        action("ledger", "replace", "/b", b"good", expects=0, before=b"old"),
        action("ledger", "remove", "/c", None, expects=0, before=b"old"),
    ]
    with open_store(uri, writable=True) as opened:
        result = apply(lambda: [plan_of(rows)], opened.store, opened.root, tmp_path, ApplyOptions("hash"), now=clock())
    assert contents(raw, root) == {"/a": (b"good", 1), "/b": (b"newer", 1)}
    assert [conflict.key for conflict in result.conflicts] == ["/b"]


def test_a_rehearsal_that_would_lock_itself_out_is_refused(
    uri: str, raw: KazooClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan whose rights do not name this session: nothing is made that could not be removed again."""
    made = write_plan(tmp_path / "plan", [Ledger(1, [(0, ("b1", "b2", "b3"))])], root="/elsewhere/ledgers")
    edit_plan(made, Edits(acl="digest:them:x=:cdrwa"), tmp_path / "theirs")
    rehearsed = command(capsys, "rehearse", tmp_path / "theirs", "--metadata", uri)
    assert (rehearsed.code, "leaves this session without cdr" in rehearsed.err) == (5, True)
    root = "/" + uri.split("/", 3)[3]
    assert raw.get_children(root) == ["BKMETA_REHEARSAL"]
    assert command(capsys, "rehearse", tmp_path / "theirs", "--metadata", uri, "--remove").code == 0
    assert raw.exists(root) is None


@pytest.mark.parametrize("kills", [(0,), (1, 3)])
def test_a_server_that_comes_back_within_the_patience_is_gone_on_with(kills: tuple[int, ...], tmp_path: Path) -> None:
    """It dies right before a write, whose parents are not made yet, and is back some seconds later: all is written."""
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    starting: list[threading.Timer] = []

    class Dying(FaultyStore):
        """Kills its server before some of the writes."""

        writes = 0

        def write(self, changes: Sequence[Write]) -> list[int]:
            if self.writes in kills:
                server.pause()  # so that what is asked is under way when the server dies
                back = threading.Timer(0.5, server.restart)
                back.start()
                starting.append(back)
            self.writes += 1
            return super().write(changes)

    rows = [action("ledger", "create", f"/00/{n:04d}/L0000", b"record") for n in range(6)]
    store = ZooKeeperStore(server.hosts)
    try:
        options = ApplyOptions("hash", in_flight=1, batch_rows=1)
        line = Dying(store, lambda _: None)
        done = apply(lambda: [plan_of(rows)], line, "/ledgers", tmp_path / "j", options, now=clock())
        assert done.exit_code == 0
        assert sum(tally.written for tally in done.tallies.values()) == len(rows)
        assert len(starting) == len(kills)
    finally:
        for back in starting:
            back.join()
        store.close()
        server.kill()
