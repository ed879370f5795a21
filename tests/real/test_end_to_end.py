"""Fresh clusters of every storage: written, stopped, wiped, brought back, and read by the real Java client."""

from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from tests.support import acid
from tests.support.cluster import DIGESTS, ClientHangsError, Cluster, History, encoded

BOOKIES = 6
QUORUMS = (
    (1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3), (4, 2, 1), (4, 3, 2), (5, 2, 2), (5, 3, 2)
)  # fmt: skip
PASSWORDS = (b"", b"hunter2", "pässwörd für 台帳".encode(), bytes(range(256)))
COUNTS = (0, 1, 2, 3, 7, 50, 400)
CUSTOM = {"application": b"pulsar", "not text": bytes(range(256))}
CHANGES = 3

pytestmark = pytest.mark.real


def _sizes(random: Random, count: int) -> list[int]:
    return [random.choice((0, 1, 20, 200, random.randrange(4000))) for _ in range(count)]


def _write(history: History, random: Random) -> None:
    digests, passwords, quorums = cycle(DIGESTS), cycle(PASSWORDS), cycle(QUORUMS)

    def create(*, adv: bool = False) -> int:
        # Four digests and four passwords would always meet the same partner.
        password = next(passwords) if random.random() < 0.75 else random.choice(PASSWORDS)
        custom = CUSTOM if random.random() < 0.5 else None
        return history.create(next(quorums), digest=next(digests), password=password, custom=custom, adv=adv)

    for count in COUNTS:
        for _ in range(4):
            ledger = create()
            for part in (count // 2, count - count // 2):
                history.add(ledger, _sizes(random, part))
            history.close(ledger)
    large = create()
    history.add(large, [100] * 3000)
    history.close(large)
    unordered = create(adv=True)
    history.add(unordered, _sizes(random, 6), [2, 0, 1, 4, 3, 5])
    history.close(unordered)

    changing = [create() for _ in range(2 * len(QUORUMS))]
    for ledger in changing:
        history.add(ledger, _sizes(random, random.randrange(1, 60)))
    for change in range(CHANGES):
        # A member of the last one's ensemble each time, so that one ledger at least sees every change.
        down = history.members(changing[-1])[change]
        history.down(down, "killed" if change % 2 else "clean")
        for ledger in changing[change:]:
            history.add(ledger, _sizes(random, random.randrange(1, 60)))
        history.up(down)
    for ledger in changing:
        history.close(ledger)


class Run:
    """One cluster's life, loss and return."""

    def __init__(self, storage: str, work: Path) -> None:
        random = Random(storage)
        with Cluster(work / "home") as cluster:
            history = History(cluster)
            for n in range(BOOKIES):
                indexes = storage == "interleaved" and n == 1
                history.bookie(n, storage, folders=1 + n % 2, journals=1 + (n == 2), indexes=indexes)
            _write(history, random)
            # What a killed one had not flushed stands in its journal only. It comes last: an add returns when the ack
            # quorum has answered, and then the others have long answered too.
            for n in reversed(range(BOOKIES)):
                history.down(n, "killed" if n == 0 else "clean")
            self.truth = history.truth()
            cluster("zk_wipe", paths=[history.root])
            self.recovered = acid.recover(
                cluster, self.truth, PASSWORDS, work / "operator", with_spark=storage == "sorted"
            )
            self.judgement = acid.judge(cluster, self.truth, collecting=True)

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        """What was true of each ledger."""
        return {row["ledger"]: row for row in self.truth["ledgers"]}


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run on one storage, shared by the tests below; once more, afresh, where the Java client hung."""
    trying = Retrying(retry=retry_if_exception_type(ClientHangsError), stop=stop_after_attempt(3), reraise=True)
    return trying(lambda: Run(request.param, tmp_path_factory.mktemp(request.param)))


STORAGES = pytest.mark.parametrize("run", ["interleaved", "sorted", "db"], indirect=True)


@STORAGES
def test_the_cluster_that_was_written_has_all_shapes(run: Run) -> None:
    """The test tests something: every quorum and digest, no entry to thousands, one segment, and one for each change.

    Which ledgers a change meets is the choice of the client.
    """
    rows = run.rows.values()
    assert {(row["E"], row["W"], row["A"]) for row in rows} == set(QUORUMS)
    assert {row["digest"] for row in rows} == set(DIGESTS)
    assert {row["password"] for row in rows} == {encoded(password) for password in PASSWORDS}
    assert {0, 1, 2, 3000} <= {len(row["entries"]) for row in rows}
    lengths = {len(row["segments"]) for row in rows}
    assert {1, 1 + CHANGES} < lengths


@STORAGES
def test_every_acknowledged_entry_is_read_again(run: Run) -> None:
    """Every ledger with an entry is readable, or a hold keeps every entry; nothing is wrong, missing or too much."""
    judgement = run.judgement
    assert judgement.problems == []
    assert judgement.back == judgement.ledgers.expected - judgement.ledgers.empty_expected
    entries = judgement.entries
    assert entries.read + entries.held == entries.expected
    assert (entries.corrupt, entries.missing, entries.acknowledged_lost, entries.beyond_end) == (0, 0, 0, 0)


@STORAGES
def test_bookies_delete_nothing_that_a_record_names(run: Run) -> None:
    """Garbage, and copies too many, are collected before anything is read; no byte goes from a bookie of a record."""
    named = {(name, ledger) for ledger, row in run.rows.items() for _, members in row["segments"] for name in members}
    assert not named & run.judgement.collected.keys()


@STORAGES
def test_only_what_is_in_doubt_is_held(run: Run) -> None:
    """Held, with reason: ledgers whose ensemble changed, whose bookies were all killed, or written out of order.

    Killed bookies have no index of them. Where lengths fall from an entry to the next, two ledgers may have had one id.
    """
    killed = {bookie["id"] for bookie in run.truth["bookies"] if bookie["ended"] == "killed"}
    for ledger in run.judgement.held:
        segments, writer = run.rows[ledger]["segments"], run.rows[ledger]["writer"]
        assert len(segments) > 1 or killed.issuperset(segments[0][1]) or writer["adv"]
        assert run.recovered.plan[ledger]["reason"]


@STORAGES
@pytest.mark.parametrize("field", ["state", "last", "length", "segments_readable"])
def test_what_came_back_is_what_was_lost(run: Run, field: str) -> None:
    """For every ledger that is not held, the fields that disks decide are those of the lost record."""
    assert run.judgement.unequal(field) == set()


@STORAGES
@pytest.mark.parametrize("field", ["digest", "password"])
def test_secrets_came_back_unless_nothing_shows_them(run: Run, field: str) -> None:
    """Digest type and password are the lost ones, but for a type without digest and entries written out of order.

    There neither a digest nor the lengths say that payloads have none in front; the record then has no such fields.
    """
    silent = {ledger for ledger, row in run.rows.items() if row["digest"] == "DUMMY" and row["writer"]["adv"]}
    assert run.judgement.unequal(field) <= silent


@STORAGES
def test_what_is_called_seen_is_true(run: Run) -> None:
    """A field that differs from the truth is never graded observed or verified."""
    assert run.judgement.overstated(run.recovered.plan) == {}


@STORAGES
def test_the_cluster_goes_on(run: Run) -> None:
    """Every bookie starts on its cookie, nothing was invented, and the next ledger gets an id that was never used."""
    judgement = run.judgement
    assert (judgement.layout, judgement.instance_id) == (True, True)
    assert set(judgement.cookies.values()) == {True}
    assert (judgement.bookies_failed, judgement.invented, judgement.resurrected) == ({}, [], [])
    assert judgement.new_ledger is not None
    assert judgement.new_ledger > run.truth["largest_id_ever"]


@STORAGES
def test_no_disk_of_theirs_is_touched(run: Run) -> None:
    """Collecting leaves every file on the bookies' disks as it was, and adds none."""
    assert run.recovered.untouched
