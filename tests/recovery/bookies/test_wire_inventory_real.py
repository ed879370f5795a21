"""Real bookies of three storages asked over the wire: what they have is what their disks have, and nothing changes."""

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from backends.bookie import frames
from backends.bookie.client import Address, BookieOptions, BookieTls, BookieWire
from backends.bookie.frames import BookieAnswer, BookieQuestion, RequestOutcome, Status
from backends.registry import open_store
from recovery.bookies import wire_inventory
from recovery.bookies.addresses import read_members
from recovery.dataset import open_dataset
from tests.support.certificates import authority, signed
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import run
from tests.support.failing_stores import Proxy
from tests.support.plan_folder import of_truth, write_plan
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

STORAGES: Final = ("sorted", "interleaved", "db")
PATIENT: Final = BookieOptions(deadline_s=60, patience_s=120)
"""For what must be answered, however busy the machine is."""
NO_PATIENCE: Final = BookieOptions(deadline_s=1.0, patience_s=1.0)
"""For what is not answered at all."""
WRITES: Final = ("ADD_ENTRY", "WRITE_LAC", "FORCE_LEDGER", "FENCE", "LONG_POLL", "WRITE_BYTES", "AUTH", "RECOVERY")
"""In the names of the metrics that must stand still."""
FILLED: Final = 40
OPEN_ENTRIES: Final = 1025
"""Of the ledger that stays open: the last one is the first of an index page, which lists of such a bookie lack."""


class Running:
    """A cluster with ledgers of every digest, its bookies named by their storage."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        self.bookies = {
            storage: Bookie(n, f"wire-{storage}", storage, [f"b{n}/journal"], [f"b{n}/ledgers"])
            for n, storage in enumerate(STORAGES)
        }
        for bookie in self.bookies.values():
            cluster.start(bookie)
        self.uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        self.closed = [
            self.ledger(3, 2, "CRC32C", b"pw", 20),
            self.ledger(3, 3, "MAC", b"secret", 5),
            self.ledger(3, 3, "CRC32", b"", 1),
            self.ledger(3, 2, "DUMMY", b"", 4),
            self.ledger(3, 3, "CRC32C", b"", 0),
        ]
        self.open = self.ledger(3, 3, "CRC32C", b"", OPEN_ENTRIES, close=False)

    def ledger(self, size: int, quorum: int, digest: str, password: bytes, entries: int, *, close: bool = True) -> int:
        """Write a ledger."""
        known = {"digest": digest, "password": encoded(password), "custom": {}}
        ledger: int = self.cluster("create", E=size, W=quorum, A=quorum, **known)
        if entries:
            self.cluster("add", ledger=ledger, sizes=[40] * entries, ids=None)
        if close:
            self.cluster("close", ledger=ledger)
        return ledger

    def counters(self, storage: str) -> dict[str, int]:
        """What a bookie's own metrics have counted."""
        found: dict[str, int] = self.cluster("counters", n=self.bookies[storage].n)
        return found

    def written(self) -> dict[str, dict[str, int]]:
        """What they have counted of everything that writes or fences."""
        return {
            storage: {name: count for name, count in self.counters(storage).items() if any(w in name for w in WRITES)}
            for storage in STORAGES
        }

    def addresses(self) -> dict[str, Address]:
        """Where they listen, as the store says."""
        with open_store(self.uri) as opened:
            members = read_members(opened.store, opened.root, None, {})
            found = {storage: members.find(f"wire-{storage}").address for storage in STORAGES}
        return {storage: address for storage, address in found.items() if address is not None}

    def restart(self, storage: str, **props: str) -> None:
        """Stop a bookie cleanly, and start it with other settings."""
        self.cluster("bookie_stop", n=self.bookies[storage].n)
        self.cluster.start(replace(self.bookies[storage], props=props))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the whole JVM as SIGSTOP does, from when all its threads have noticed."""
        threads = Path(f"/proc/{self.cluster.pid}/task")
        os.kill(self.cluster.pid, signal.SIGSTOP)
        try:
            until(lambda: all(") T " in t.joinpath("stat").read_text() for t in threads.iterdir()), "all threads stop")
            yield
        finally:
            os.kill(self.cluster.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One cluster for all tests; each leaves its bookies running."""
    with Cluster(tmp_path_factory.mktemp("wire") / "cluster") as cluster:
        yield Running(cluster)


def asked(address: Address, options: BookieOptions, *requests: BookieQuestion) -> list[BookieAnswer]:
    """Ask one bookie, on one connection; answers in the order of the requests."""
    found: dict[int, BookieAnswer] = {}

    async def ask() -> None:
        with BookieWire({"bookie": address}, options) as wire:
            await wire["bookie"].ask(enumerate(requests), found.__setitem__)

    asyncio.run(ask())
    return [found[number] for number in range(len(requests))]


def copies(path: Path) -> dict[int, dict[str, Any]]:
    """What an inventory says of each ledger that can be compared."""
    names = ["ledger", "source", "groups", "entries", "first", "last", "headers", "explicit_lac"]
    rows = open_dataset(path, "inventory").read("copies", columns=names).to_pylist()
    return {row["ledger"]: row for row in rows if row.pop("source") in ("wire", "index")}


@pytest.mark.spark
def test_a_cluster_is_collected_as_its_disks_are_and_not_touched(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups, entries, headers of each ledger equal those of flushed disks; metrics show no write and no fence."""
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    passwords.write_text("secret\n")
    before = running.written()
    done = run(
        capsys, "collect", "--wire", "--metadata", running.uri, "--passwords", passwords, "--out", tmp_path / "wire",
        "--master", "local[2]", "--deadline", "5", "--json",
    )  # fmt: skip
    assert running.written() == before
    assert done.code == 4, done.err
    said = done.result["coverage"]["bookies"]
    assert {name: one["kind"] for name, one in said.items()} == {
        "wire-sorted": "collected",
        "wire-interleaved": "collected",
        "wire-db": "no_lists",
    }
    # Found out once: the ledgers that it was tried with, and no others.
    lists = {s: running.counters(s)["bookkeeper_server.GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST"] for s in STORAGES}
    assert lists["db"] <= 3 < lists["sorted"]
    for storage in ("sorted", "interleaved"):
        bookie = running.bookies[storage]
        running.restart(storage)  # which flushes
        disks = [running.cluster.home / path for path in (*bookie.ledgers, *bookie.journals)]
        out = tmp_path / f"{storage}-disks"
        collected = run(
            capsys, "collect", "--ledger-dir", disks[0], "--journal-dir", disks[1], "--passwords", passwords,
            "--out", out,
        )  # fmt: skip
        assert collected.code in (0, 4)
        wire, disk = copies(tmp_path / "wire" / bookie.id), copies(out)
        assert wire == disk
        assert set(wire) == {*running.closed[:-1], running.open}
        assert (wire[running.open]["entries"], wire[running.open]["last"]) == (OPEN_ENTRIES, OPEN_ENTRIES - 1)
        coverage = open_dataset(tmp_path / "wire" / bookie.id, "inventory").manifest["coverage"]
        assert (coverage["complete"], coverage["asked"], coverage["unanswered"]) == (False, 6, 0)
        assert "ledgers that the store does not list" in coverage["not_told"]


def test_a_bookie_keeps_the_index_file_of_each_listed_ledger_open_and_that_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that may have few open has all of them open, for as long as it runs; reads alone do not do that."""
    monkeypatch.setattr(wire_inventory, "MANY_FILES", FILLED - 1)
    with Cluster(tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        bookie = Bookie(0, "bk0", "sorted", ["b0/journal"], ["b0/ledgers"], props={"openFileLimit": "3"})
        cluster.start(bookie)
        known = {"digest": "CRC32C", "password": encoded(b"")}
        assert cluster("fill", count=FILLED, entries=2, E=1, W=1, A=1, **known) == 0
        cluster("flush")
        uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"

        def count_open() -> int:
            places = Path(f"/proc/{cluster.pid}/fd").iterdir()
            return sum(os.fspath(place.readlink()).endswith(".idx") for place in places if place.is_symlink())

        with open_store(uri) as opened:
            address = read_members(opened.store, opened.root, None, {}).find("bk0").address
        assert address is not None
        read = asked(address, PATIENT, *(frames.read_entry(ledger, frames.LAST) for ledger in range(FILLED)))
        assert [answer.outcome for answer in read] == [RequestOutcome.ANSWER] * FILLED
        assert count_open() < FILLED / 2
        done = run(
            capsys, "scrutinize", "--wire", "--metadata", uri, "--out", tmp_path / "run", "--recheck-after", "0s"
        )
        assert done.code == 0
        (warning,) = caplog.messages
        assert warning.startswith(f"bk0 will keep the index file of each of {FILLED} ledgers")
        caplog.clear()
        assert count_open() >= FILLED
        cluster("bookie_stop", n=0)
        assert count_open() == 0
        cluster.start(bookie)
        monkeypatch.setattr(wire_inventory, "MANY_FILES", FILLED)
        again = run(
            capsys, "scrutinize", "--wire", "--metadata", uri, "--out", tmp_path / "two", "--recheck-after", "0s"
        )
        assert (again.code, caplog.messages) == (0, [])


def test_the_open_ledger_was_not_fenced(running: Running) -> None:
    """Its writer goes on."""
    for address in running.addresses().values():
        asked(address, PATIENT, frames.read_entry(running.open, -1), frames.read_lac(running.open))
    running.cluster("add", ledger=running.open, sizes=[10], ids=None)


def test_each_storage_answers_as_classified(running: Running) -> None:
    """Known, unknown, without entries, behind the end; DbLedgerStorage says nothing of a ledger that it knows."""
    full, empty, unknown = running.closed[2], running.closed[4], 4711
    for storage, address in running.addresses().items():
        questions = [
            frames.read_entry(full, 0), frames.read_entry(full, -1), frames.read_entry(full, 7),
            frames.read_entry(unknown, 0), frames.read_lac(full), frames.read_lac(unknown),
            frames.list_entries(unknown), frames.list_entries(empty), frames.bookie_info(),
        ]  # fmt: skip
        answers = asked(address, PATIENT, *questions)
        assert [answer.outcome for answer in answers] == [
            RequestOutcome.ANSWER, RequestOutcome.ANSWER, RequestOutcome.NEGATIVE, RequestOutcome.NEGATIVE,
            RequestOutcome.ANSWER, RequestOutcome.REFUSED,
            RequestOutcome.NEGATIVE, RequestOutcome.NEGATIVE, RequestOutcome.ANSWER,
        ], storage  # fmt: skip
        assert answers[2].status == Status.ENOENTRY
        assert answers[3].status == Status.ENOLEDGER
        assert answers[-1].total > answers[-1].free > 0
        options = NO_PATIENCE if storage == "db" else PATIENT
        (listed,) = asked(address, options, frames.list_entries(full))
        assert listed.outcome is (RequestOutcome.NO_ANSWER if storage == "db" else RequestOutcome.ANSWER)


def test_a_scope_is_not_taken_for_scope_0(running: Running) -> None:
    """A released bookie ignores the field: what it says of the ledger with the same low half is not believed."""
    address = running.addresses()["sorted"]
    listed, lac = asked(
        address, PATIENT, frames.list_entries(running.closed[0], 7), frames.read_lac(running.closed[0], 7)
    )
    assert (listed.outcome, lac.outcome) == (RequestOutcome.NOT_UNDERSTOOD, RequestOutcome.NOT_UNDERSTOOD)


def test_a_paused_bookie_gives_no_answer_and_answers_when_it_goes_on(running: Running) -> None:
    """SIGSTOP: connections stand, nothing comes; nothing hangs, and nothing is taken for a negative."""
    address = running.addresses()["interleaved"]
    questions = [frames.list_entries(running.closed[0])] * 50
    with running.paused():
        assert {a.outcome for a in asked(address, NO_PATIENCE, *questions)} == {RequestOutcome.NO_ANSWER}
    assert {a.outcome for a in asked(address, PATIENT, *questions)} == {RequestOutcome.ANSWER}


def test_a_bookie_that_restarts_answers_all_in_the_end(running: Running) -> None:
    """Stopped and started in the middle of many questions: each gets its answer, once."""
    address = running.addresses()["sorted"]
    count = 4000
    found: Counter[tuple[int, RequestOutcome]] = Counter()
    started = threading.Event()

    def restart() -> None:
        started.wait()
        running.restart("sorted")

    helper = threading.Thread(target=restart)

    def take(number: int, answer: BookieAnswer) -> None:
        found[number, answer.outcome] += 1
        if len(found) == 500:
            started.set()

    async def ask() -> None:
        # The pace keeps questions coming until the bookie is gone and back.
        with BookieWire({"sorted": address}, replace(PATIENT, per_bookie=1000)) as wire:
            await wire["sorted"].ask(((n, frames.list_entries(running.closed[0])) for n in range(count)), take)

    helper.start()
    try:
        asyncio.run(ask())
    finally:
        started.set()
        helper.join()
    assert set(found.values()) == {1}
    assert {outcome for _, outcome in found} == {RequestOutcome.ANSWER}
    assert len(found) == count


def test_slow_and_dead_bookies(running: Running) -> None:
    """Answers that trickle are answers; nobody there, or a line that breaks at every answer, is no answer."""
    address = running.addresses()["interleaved"]
    questions = [frames.list_entries(running.closed[2]), frames.read_entry(running.closed[2], 0)] * 3
    with Proxy(*address) as proxy:
        there = Address("127.0.0.1", int(proxy.hosts.rpartition(":")[2]))
        proxy.split_answers(7, 0.001)
        assert {a.outcome for a in asked(there, PATIENT, *questions)} == {RequestOutcome.ANSWER}
        proxy.split_answers(0)
        proxy.cut_answers([30] * 50)
        broken = asked(there, replace(PATIENT, patience_s=1), *questions)
        assert {a.outcome for a in broken} == {RequestOutcome.NO_ANSWER}
        proxy.down()
        assert {a.outcome for a in asked(there, NO_PATIENCE, *questions)} == {RequestOutcome.NO_ANSWER}
    gone = asked(there, NO_PATIENCE, *questions)
    assert {a.outcome for a in gone} == {RequestOutcome.NO_ANSWER}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of two authorities in a folder: each of a bookie and of a client."""
    folder = tmp_path_factory.mktemp("tls")
    for ca in ("ours", "theirs"):
        authority(folder, ca)
        for name in ("bookie", "client"):
            signed(folder, f"{ca}-{name}", ca)
    return folder


def _tls_props(folder: Path) -> dict[str, str]:
    return {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsClientAuthentication": "true",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(folder / "ours-bookie.key"),
        "tlsCertificatePath": str(folder / "ours-bookie.crt"),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(folder / "ours.crt"),
    }


def test_tls_and_authentication_of_every_storage(running: Running, certificates: Path) -> None:
    """With both, answers; without, or with the wrong one, refused: never a negative, never clear text."""

    def shown(authority: str, trusted: str, auth: str | None = "WireCheck") -> BookieOptions:
        tls = BookieTls(certificates / f"{trusted}.crt", certificates / f"{authority}-client.crt",
                  certificates / f"{authority}-client.key")  # fmt: skip
        return replace(PATIENT, tls=tls, auth=auth and f"tests.support.wire_check:{auth}")

    question = frames.read_entry(running.closed[2], 0)
    unknown = frames.list_entries(4711)
    for storage in STORAGES:
        running.restart(storage, bookieAuthProviderFactoryClass="WireCheck", **_tls_props(certificates))
        address = running.addresses()[storage]
        good = [a.outcome for a in asked(address, shown("ours", "ours"), question, unknown)]
        assert good == [RequestOutcome.ANSWER, RequestOutcome.NEGATIVE]
        for options in (
            PATIENT,  # in clear text, and nobody
            shown("ours", "ours", None),
            shown("ours", "ours", "WrongPassword"),
            shown("ours", "ours", "OtherPlugin"),
            shown("ours", "theirs"),  # who does not trust the bookie
        ):
            assert [a.outcome for a in asked(address, options, question, unknown)] == [RequestOutcome.REFUSED] * 2, (
                options
            )
        # Whom the bookie does not trust it may also simply cut off.
        for options in (
            shown("theirs", "ours"),
            replace(PATIENT, patience_s=2, tls=BookieTls(certificates / "ours.crt")),
        ):
            answers = asked(address, options, question, unknown)
            assert {a.outcome for a in answers} <= {RequestOutcome.REFUSED, RequestOutcome.NO_ANSWER}
        running.restart(storage)
        (clear,) = asked(running.addresses()[storage], shown("ours", "ours"), question)
        assert (clear.outcome, "TLS" in clear.said) == (RequestOutcome.REFUSED, True)
        (nobody,) = asked(
            running.addresses()[storage], replace(PATIENT, auth="tests.support.wire_check:WireCheck"), question
        )
        assert nobody.outcome is RequestOutcome.ANSWER


def test_a_plan_is_verified_and_rehearsed_over_the_wire(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every copy good; a bookie that is gone is not looked at; a name that nobody knows is an error until told."""
    rows = [row for row in running.cluster.ledgers().values() if row["ledger"] in running.closed]
    plan = write_plan(tmp_path / "plan", [of_truth(row) for row in rows], passwords=[b"pw", b"secret", b""])
    before = running.written()
    verified = run(capsys, "verify", plan.path, "--metadata", running.uri, "--wire", "--sample", "all", "--json")
    assert verified.code in (0, 3), verified.err  # written here, the records' custom fields may differ
    counts = verified.result["counts"]
    promised = counts["copies"]["promised"]
    assert counts["copies"]["good"] == promised == 66
    assert (counts["entries"]["looked_at"], counts["entries"]["readable"]) == (30, 30)
    target = running.uri.replace("/ledgers", "/rehearsal/ledgers")
    rehearsed = run(
        capsys, "rehearse", plan.path, "--metadata", target, "--wire", "--bookies-from", running.uri, "--json"
    )
    assert rehearsed.code == 0, rehearsed.out
    assert rehearsed.result["counts"]["entries"]["readable"] == 30
    assert running.written() == before
    # In the rehearsal's root nobody is registered, so no name is anybody's.
    lost = run(capsys, "verify", plan.path, "--metadata", target, "--wire", "--json")
    assert lost.code == 4
    assert set(lost.result["coverage"]["unresolved"]) == {f"wire-{storage}" for storage in STORAGES}
    assert all("ALIAS_UNRESOLVED" in why for why in lost.result["coverage"]["unresolved"].values())
    assert lost.result["counts"]["copies"]["not_looked_at"] == promised
    aliases = tmp_path / "aliases"
    aliases.write_text("".join(f"wire-{s} {a.host}:{a.port}\n" for s, a in running.addresses().items()))
    named = run(capsys, "verify", plan.path, "--metadata", target, "--wire", "--aliases", aliases, "--json")
    assert (named.code, named.result["coverage"]["unresolved"]) == (0, {})
    running.cluster("bookie_stop", n=running.bookies["db"].n)
    try:
        hasty = ("--wire", "--deadline", "2", "--patience", "2", "--json")
        less = run(capsys, "verify", plan.path, "--metadata", running.uri, *hasty)
        assert less.result["counts"]["copies"]["not_looked_at"] > 0
        assert less.result["counts"]["copies"].get("absent", 0) == 0
        assert less.result["counts"]["entries"].get("missing", 0) == 0
    finally:
        running.cluster.start(running.bookies["db"])
