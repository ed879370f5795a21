"""The impact check of whole clusters: what is asked, and every kind of answer."""

import json
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reconcile.check.impact.answer import LossStatement
from reconcile.check.impact.names import DomainLevel, ImpactTarget
from reconcile.check.impact.segments.columns import Shape
from reconcile.check.impact.system_ledgers import name_kind
from reconcile.cli.wording.impacts import describe_segment_impact, describe_verdict
from reconcile.findings.table import FindingRun
from reconcile.jobs.impact import check
from reconcile.jobs.impact.cache import Captured
from reconcile.jobs.impact.question import Taken
from reconcile.references import References, read
from reconcile.rules.segments.placement import PlacementPolicy, PlacementSettings
from reconcile.rules.segments.record_rules import find_misplaced_segments
from recovery.dataset import Dataset, open_dataset
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from tests.support.impact_judge import Ledger
from tests.support.impact_question import ask, list_impacts
from tests.support.impacts import AT, write_catalog
from tests.support.inventories import write_inventory

pytestmark = pytest.mark.long

BOOKIES = tuple(f"bk{number}:3181" for number in range(1, 9))
A, B, C, D, E, F, G, H = BOOKIES
RACKS = {A: "/x/r1", B: "/x/r1", C: "/x/r2", D: "/x/r2", E: "/y/r3", F: "/y/r3", G: "/y/r4", H: "/y/r4"}


def closed(number: int, *members: str, write: int = 2, last: int = 9, marked: frozenset[str] = frozenset()) -> Ledger:
    """A ledger with one segment that has ended."""
    return Ledger(number, (len(members), write, write), "CLOSED", last, ((0, members),), marked)


def opened(number: int, *members: str, write: int = 2, ack: int = 2, state: str = "OPEN") -> Ledger:
    """A ledger with one segment that may grow."""
    return Ledger(number, (len(members), write, ack), state, None, ((0, members),))


@pytest.fixture
def catalog(tmp_path: Path) -> Dataset:
    """Ledgers on one rack, on two, and an open one."""
    ledgers = [closed(1, A, B), closed(2, A, C), closed(3, C, E, G, write=3), opened(4, E, G)]
    return write_catalog(tmp_path / "catalog", BOOKIES, ledgers)


def test_another_name_of_a_bookie_is_that_bookie(tmp_path: Path) -> None:
    """Records and marks that name it by its old address are judged as by its id; without the alias they are not."""
    old = "10.0.0.5:3181"
    ledgers = [closed(1, old, B), closed(2, B, C, marked=frozenset([old])), closed(3, A, C, marked=frozenset([A]))]
    truth = [closed(1, A, B), closed(2, B, C, marked=frozenset([A])), closed(3, A, C, marked=frozenset([A]))]
    renamed = write_catalog(tmp_path / "renamed" / "catalog", BOOKIES, ledgers)
    plain = write_catalog(tmp_path / "plain" / "catalog", BOOKIES, truth)
    for taken in ((A, B), (A,), (B,)):
        with_alias, by_id = ask(renamed, taken, aliases={old: A}), ask(plain, taken)
        assert list_impacts(with_alias) == list_impacts(by_id)
        assert (with_alias.verdict, with_alias.undecided) == (by_id.verdict, by_id.undecided)
    assert list_impacts(ask(renamed, (B,))) != list_impacts(ask(plain, (B,)))


def test_each_set_is_judged_alone_and_all_together(catalog: Dataset) -> None:
    """What two sets do together says neither of them alone."""
    answer = ask(catalog, (A,), (C,), most_unavailable=50)
    assert [str(one.verdict) for one in answer.sets] == ["SAFE", "SAFE"]
    assert answer.together is not None
    assert (str(answer.together.verdict), list_impacts(answer)) == (
        "UNSAFE", {"READ_AVAILABILITY_LOSS": 1, "REBUILDING_STALL": 1}
    )  # fmt: skip
    assert answer.together.impacts["READ_AVAILABILITY_LOSS"].entries == 10
    assert str(answer.verdict) == "SAFE"


def test_a_target_says_what_becomes_of_a_bookie(catalog: Dataset) -> None:
    """Read only loses nothing to readers, down for a while, gone for ever; an open ledger loses its recovery."""
    assert list_impacts(ask(catalog, (A, B), taken=Taken(((A, B),), target=ImpactTarget.READ_ONLY))) == {}
    assert list_impacts(ask(catalog, (A, B))) == {"READ_AVAILABILITY_LOSS": 1, "REBUILDING_STALL": 1}
    assert list_impacts(ask(catalog, taken=Taken(((A, B),), target=ImpactTarget.GONE))) == {
        "DATA_LOSS": 1, "REBUILDING_STALL": 1
    }  # fmt: skip
    assert list_impacts(ask(catalog, (E, G))) == {
        "READ_AVAILABILITY_LOSS": 1, "RECOVERY_LOSS": 1, "REBUILDING_STALL": 1
    }  # fmt: skip


def test_domains_and_hosts_are_taken_whole(catalog: Dataset) -> None:
    """A rack, a region, a pattern of hosts; a name that nothing has is refused with the names that there are."""
    racks: dict[str, Any] = {"topology": RACKS}
    assert ask(catalog, taken=Taken(domains=("/x/r1",)), **racks).sets[0].bookies == (A, B)
    assert ask(catalog, taken=Taken(domains=("/y",)), **racks).sets[0].bookies == (E, F, G, H)
    assert ask(catalog, taken=Taken(domains=("x", "/y/r3")), **racks).sets[0].bookies == (A, B, C, D, E, F)
    assert ask(catalog, taken=Taken(domains=("r4",)), **racks).sets[0].bookies == (G, H)
    assert ask(catalog, taken=Taken(hosts=("bk[12]",))).sets[0].bookies == (A, B)
    with pytest.raises(InputError, match="/x/r1"):
        ask(catalog, taken=Taken(domains=("/z",)), **racks)
    with pytest.raises(InputError, match="give a topology"):
        ask(catalog, taken=Taken(domains=("/x",)))
    with pytest.raises(InputError, match="fits no bookie's host"):
        ask(catalog, taken=Taken(hosts=("db*",)))
    with pytest.raises(InputError, match="no cookie"):
        ask(catalog, ("bk9:3181",))


def test_segments_that_ended_on_one_rack_are_lost_with_it(tmp_path: Path) -> None:
    """Two racks; forty ledgers whose second segment stands on one of them alone, as after a rack was away."""
    racks = {A: "/rackA", B: "/rackA", C: "/rackA", D: "/rackB", E: "/rackB", F: "/rackB"}
    ledgers = [
        Ledger(number, (3, 3, 2), "CLOSED", 99, ((0, (A, B, D)), *([(50, (C, A, B))] if number < 40 else [])))
        for number in range(60)
    ]
    made = write_catalog(tmp_path / "catalog", racks, ledgers)
    ask(made, taken=Taken(domains=("/rackA",)), topology=racks, out=tmp_path / "out", most_unavailable=50)
    rows = open_dataset(tmp_path / "out", "impact").read("impacts").to_pylist()
    ids = (tmp_path / "out" / "ledgers.txt").read_text().split()
    assert ids == [str(number) for number in sorted({row["ledger"] for row in rows})]
    lost = {(row["ledger"], row["segment"]) for row in rows if row["impact"] == "READ_AVAILABILITY_LOSS"}
    run = FindingRun("scrutiny", AT)
    found, counts = find_misplaced_segments(made.read("ledgers"), racks, PlacementSettings(min_racks=2), run)
    against = {
        (row["ledger"], fact["field"])
        for row in found.to_pylist()
        for fact in row["evidence"]
        if row["category"] == "PLACEMENT_VIOLATED" and fact["side"] == "store"
    }
    assert against == {(ledger, "segment from entry 50") for ledger, _ in lost}
    assert (lost, counts.violated) == ({(number, 1) for number in range(40)}, 40)


def test_a_drill_takes_every_domain_alone(catalog: Dataset) -> None:
    """Racks, regions and bookies, each with its own verdict: one that holds both copies of a ledger is unsafe."""
    answer = ask(catalog, drill=DomainLevel.RACK, topology=RACKS)
    assert {one.label: str(one.verdict) for one in answer.drill} == {
        "/x/r1": "UNSAFE", "/x/r2": "SAFE", "/y/r3": "SAFE", "/y/r4": "SAFE"
    }  # fmt: skip
    assert answer.drill[0].caused == ("READ_AVAILABILITY_LOSS", "REBUILDING_STALL")
    assert str(answer.verdict) == "UNSAFE"
    regions = ask(catalog, drill=DomainLevel.REGION, topology=RACKS, most_unavailable=50)
    assert {one.label: str(one.verdict) for one in regions.drill} == {"/x": "UNSAFE", "/y": "UNSAFE"}
    bookies = ask(catalog, drill=DomainLevel.BOOKIE)
    assert {str(one.verdict) for one in bookies.drill} == {"SAFE"}
    assert len(bookies.drill) == len(BOOKIES)


def test_a_bookie_without_a_location_leaves_a_drill_of_racks_undecided(catalog: Dataset) -> None:
    """It may stand on any of them; where a rack is unsafe, that is said all the same."""
    some = {name: rack for name, rack in RACKS.items() if name != H}
    answer = ask(catalog, drill=DomainLevel.RACK, topology=some)
    assert [str(one.verdict) for one in answer.drill] == ["UNSAFE", "UNDECIDED", "UNDECIDED", "UNDECIDED"]
    assert answer.undecided == (f"1 bookie without a location: {H}",)
    assert str(ask(catalog, (A,), topology=some).verdict) == "SAFE"


def test_capacity_is_counted_by_weight(catalog: Dataset) -> None:
    """One bookie in eight, and two; one that weighs as much as all others; the threshold is the asker's."""
    one, two = ask(catalog, (A,)).sets[0], ask(catalog, (A, D, F)).sets[0]
    assert (one.capacity.after, one.caused) == (12.5, ())
    assert (two.capacity.after, two.caused) == (37.5, ("STORAGE_CAPACITY_LOSS",))
    assert ask(catalog, (A, D, F), most_unavailable=40).sets[0].caused == ()
    assert ask(catalog, (A,), weights={A: 7.0}).sets[0].caused == ("STORAGE_CAPACITY_LOSS",)
    assert ask(catalog, (A,), weights={B: 7.0}).sets[0].capacity.after == pytest.approx(100 / 14)


def test_new_ledgers_need_an_ensemble(catalog: Dataset) -> None:
    """Of the quorum that is named; by counting, and by racks where the policy demands them."""
    quorum = Shape(7, 2, 2)
    assert ask(catalog, (D,), default_quorum=quorum).sets[0].caused == ()
    lacking = ask(catalog, (D, F), default_quorum=quorum).sets[0]
    assert (lacking.caused, lacking.new_ledgers) == (("WRITE_AVAILABILITY_LOSS",), ("7/2/2",))
    policy = PlacementSettings(policy=PlacementPolicy.RACK_AWARE, min_racks=4, enforce_min_racks=True)
    racked: dict[str, Any] = {"placement": policy, "topology": RACKS, "default_quorum": Shape(4, 4, 2)}
    assert ask(catalog, (D,), **racked).sets[0].caused == ()
    assert ask(catalog, (C, D), **racked).sets[0].new_ledgers == ("4/4/2",)


def test_the_servers_of_the_store_on_the_same_hosts(catalog: Dataset) -> None:
    """Three servers, of which the set takes one, and two."""
    servers: dict[str, Any] = {"zookeeper": ("bk1", "bk2", "zk3")}
    assert ask(catalog, (A,), **servers).sets[0].quorum is not None
    assert ask(catalog, (A,), **servers).sets[0].caused == ()
    both = ask(catalog, (A, B), **servers).sets[0]
    assert "METADATA_QUORUM" in both.caused
    assert both.quorum is not None
    assert (both.quorum.left, both.quorum.needs) == (1, 2)
    assert ask(catalog, (D,), **servers).sets[0].quorum is None


def test_a_record_that_cannot_be_read_is_undecided_by_itself(tmp_path: Path) -> None:
    """Others are answered for; not where it alone is asked for, or its bookies are removed, or its form may be new."""
    ledgers = [closed(1, A, B), closed(2, A, C), closed(3, D, E)]
    bad = write_catalog(tmp_path / "bad", BOOKIES, ledgers, unreadable=[2])
    answer = ask(bad, (D,))
    assert (str(answer.verdict), answer.unreadable, answer.unreadable_sample) == ("SAFE", 1, ("2",))
    assert "undecided: 1 record cannot be read: 2" in describe_verdict(answer, "down")
    assert str(ask(bad, (A, B)).verdict) == "UNSAFE"
    gone = ask(bad, taken=Taken(((D,),), target=ImpactTarget.GONE))
    assert (str(gone.verdict), gone.undecided) == ("UNDECIDED", ("1 record cannot be read: 2",))
    assert str(ask(bad, (D,), ledgers=(LedgerId(0, 2), LedgerId(0, 3))).verdict) == "UNDECIDED"
    assert str(ask(bad, (D,), ledgers=(LedgerId(0, 3),)).verdict) == "SAFE"
    newer = write_catalog(tmp_path / "newer", BOOKIES, ledgers, unreadable=[2], why="bad_version: format '9'")
    assert str(ask(newer, (D,)).verdict) == "UNDECIDED"
    nothing = write_catalog(tmp_path / "nothing", BOOKIES, ledgers[:1], unreadable=[1])
    assert str(ask(nothing, (D,)).verdict) == "UNDECIDED"


def test_gaps_of_a_capture_leave_it_undecided(tmp_path: Path) -> None:
    """What was not read may be hit."""
    gap = write_catalog(tmp_path / "gap", BOOKIES, [closed(1, A, B)], gaps=["/ledgers/00: access denied"])
    assert ask(gap, (D,)).undecided == ("the capture has gaps: /ledgers/00: access denied",)


def test_new_ledgers_are_known_by_their_transactions_where_nothing_has_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on etcd: those of the last day by their revision; without one of a day ago every shape in use counts."""
    ledgers = [closed(1, *BOOKIES[:7], last=-1), closed(2, A, B), closed(3, A, B, C)]
    made = write_catalog(tmp_path / "catalog", BOOKIES, ledgers, created={1: 10, 2: 50, 3: 60})
    answer = ask(made, (D, F), most_unavailable=50)
    assert (answer.shapes, answer.undated) == (("2/2/2", "3/2/2", "7/2/2"), 3)
    assert answer.sets[0].caused == ("WRITE_AVAILABILITY_LOSS",)
    monkeypatch.setattr(
        check, "provide_catalog", lambda *_: Captured(made, AT, alive=False, is_fresh=False, since_txn=50)
    )
    lately = ask(made, (D, F), most_unavailable=50)
    assert (lately.shapes, lately.undated, str(lately.verdict)) == (("3/2/2",), 0, "SAFE")


def test_a_store_without_its_root_is_undecided(tmp_path: Path) -> None:
    """Nothing is listed, so nothing can be called safe."""
    missing = write_catalog(tmp_path / "missing", (), (), root="missing")
    answer = ask(missing)
    assert (str(answer.verdict), answer.undecided) == ("UNDECIDED", ("the ledgers root does not exist",))


def test_who_re_replicates_is_said(tmp_path: Path) -> None:
    """That it is disabled; of a capture nobody knows whether its auditor lives."""
    nodes = {
        "/underreplication/disable": ("other", b""),
        "/underreplication/auditorelection/V_0000000001": ("other", b'bookieId: "bk2:3181"\n'),
    }
    replication = ask(write_catalog(tmp_path / "catalog", BOOKIES, [], nodes=nodes)).replication
    assert (replication.disabled, replication.auditor) == (True, None)


def test_only_the_ledgers_that_are_named(catalog: Dataset) -> None:
    """Others are not looked at, and not counted."""
    answer = ask(catalog, (A, B), ledgers=(LedgerId(0, 2), LedgerId(0, 3)))
    assert (str(answer.verdict), answer.ledgers) == ("SAFE", 2)


def test_a_margin_is_what_may_still_go_afterwards(catalog: Dataset) -> None:
    """A ledger on one rack fails for racks at once; one on two bookies once one of them is taken."""
    assert list_impacts(ask(catalog, margin=DomainLevel.RACK, topology=RACKS)) == {"READ_MARGIN_LOSS": 1}
    assert list_impacts(ask(catalog, margin=DomainLevel.BOOKIE)) == {}
    answer = ask(catalog, (C,), margin=DomainLevel.BOOKIE)
    assert list_impacts(answer) == {"READ_MARGIN_LOSS": 1}
    assert answer.sample[0].ledger == "2"


def test_marked_copies_count_as_lost(tmp_path: Path) -> None:
    """A mark names a copy that is believed to be missing: the other one is the last."""
    ledgers = [closed(1, A, B, marked=frozenset({A})), closed(2, A, B)]
    made = write_catalog(tmp_path / "marked", BOOKIES, ledgers)
    assert list_impacts(ask(made, (B,))) == {"READ_AVAILABILITY_LOSS": 1, "REBUILDING_STALL": 1}
    assert list_impacts(ask(made, (A,))) == {}
    assert ask(made).replication.marked == 1


def test_what_is_broken_already_makes_nothing_unsafe(tmp_path: Path) -> None:
    """It is listed apart, and asked with nothing named it is the answer."""
    ledgers = [closed(1, A, marked=frozenset({A}), write=1), closed(2, C, D)]
    made = write_catalog(tmp_path / "broken", BOOKIES, ledgers)
    now = ask(made)
    assert (str(now.verdict), list_impacts(now)) == ("UNSAFE", {"READ_AVAILABILITY_LOSS": 1, "REBUILDING_STALL": 1})
    answer = ask(made, (C,))
    assert str(answer.verdict) == "SAFE"
    assert answer.sample[0].already
    assert list_impacts(answer) == list_impacts(now)
    assert answer.sets[0].caused == ()


def test_a_statement_releases_the_stall_and_is_remembered(tmp_path: Path) -> None:
    """Nobody waits any more for a bookie that lost its data: what it alone held is lost, and the statement is kept."""
    made = write_catalog(tmp_path / "catalog", BOOKIES, [closed(1, A, B)])
    assert list_impacts(ask(made, taken=Taken(((A, B),), target=ImpactTarget.GONE))) == {
        "DATA_LOSS": 1, "REBUILDING_STALL": 1
    }  # fmt: skip
    said = [LossStatement("2026-01-02T00:00:00+00:00", "operator", "ticket 1", name) for name in (A, B)]
    assert list_impacts(ask(made, unrecoverable=tuple(said))) == {"DATA_LOSS": 1}
    later = ask(made)
    assert (later.declared, list_impacts(later)) == (tuple(said), {})
    with pytest.raises(InputError, match="no cookie"):
        ask(made, unrecoverable=(replace(said[0], bookie="bk9:3181"),))


def test_what_bookies_hold_counts_instead_of_promises(tmp_path: Path) -> None:
    """A bookie that lacks the last entry of a ledger has no copy of it; one that was not collected is believed."""
    made = write_catalog(tmp_path / "catalog", BOOKIES, [closed(7, A, B, last=9), closed(8, C, D, last=9)])
    whole = open_dataset(write_inventory(tmp_path / "whole", A, [7], instance="i", entries=10), "inventory")
    short = open_dataset(write_inventory(tmp_path / "short", A, [7], instance="i", entries=9), "inventory")
    assert str(ask(made, (B,), inventories=(whole,)).verdict) == "SAFE"
    answer = ask(made, (B,), inventories=(short,))
    assert list_impacts(answer) == {"READ_AVAILABILITY_LOSS": 1, "REBUILDING_STALL": 1}
    # All entries that stand where the missing one does: every second.
    assert answer.sets[0].impacts["READ_AVAILABILITY_LOSS"].entries == 5
    assert str(ask(made, (D,), inventories=(short,)).verdict) == "SAFE"


def test_the_upper_layers_own_ledgers_come_first(tmp_path: Path) -> None:
    """Cursors and schemas of references lead the sample, and say whose they are."""
    made = write_catalog(tmp_path / "catalog", BOOKIES, [closed(number, A, B) for number in range(1, 80)])
    file = tmp_path / "references.jsonl"
    rows = [
        {"ledger": 60, "owner": "cursor c of t"},
        {"ledger": 61, "owner": "t"},
        {"ledger": 70, "owner": "schema of t"},
        {"ledger": 71, "owner": "pulsar/system/persistent/__transaction_log_3"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = ask(made, (A, B), references=References(read(file)))
    assert [(one.ledger, one.owner) for one in answer.sample[:3]] != []
    assert {one.ledger: one.kind for one in answer.sample[:3]} == {
        "60": "cursor", "70": "schema", "71": "transaction log"
    }  # fmt: skip
    assert (len(answer.sample), answer.sample[3].owner, answer.sample[3].kind) == (50, None, None)
    assert "ledger 60 (cursor c of t; critical: cursor)" in str(next(describe_segment_impact(answer.sample[0])))


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        ("public/default/persistent/orders", None),
        ("public/default/persistent/orders-sub__transaction_pending_ack", "transaction log"),
        ("public/default/persistent/__transaction_buffer_snapshot_segments", "transaction log"),
        ("public/default/persistent/__change_events", "system topic"),
        ("pulsar/system/persistent/loadbalancer-service-unit-state", "system topic"),
        ("public/functions/persistent/metadata", "system topic"),
        ("schema of public/default/orders", "schema"),
        ("cursors", None),
        ("tenant/ns/persistent/pending__transaction_pending_ack_of_mine", None),
    ],
)
def test_what_an_upper_layer_keeps_for_itself_is_told_apart(owner: str, kind: str | None) -> None:
    """By the names that Pulsar gives; a user's topic is none of it."""
    assert name_kind(owner) == kind


def test_all_that_is_hit_is_written(catalog: Dataset, tmp_path: Path) -> None:
    """The dataset has a row an impact of a segment, in its order, and agrees with what is counted."""
    ask(catalog, (A, B), (E, G), out=tmp_path / "out")
    rows = open_dataset(tmp_path / "out", "impact").read("impacts").to_pylist()
    assert sorted((row["target"], row["ledger"], row["segment"], row["impact"], row["last"]) for row in rows) == [
        ("all together", 1, 0, "READ_AVAILABILITY_LOSS", 9),
        ("all together", 1, 0, "REBUILDING_STALL", 9),
        ("all together", 4, 0, "READ_AVAILABILITY_LOSS", None),
        ("all together", 4, 0, "REBUILDING_STALL", None),
        ("all together", 4, 0, "RECOVERY_LOSS", None),
        (f"{A}, {B}", 1, 0, "READ_AVAILABILITY_LOSS", 9),
        (f"{A}, {B}", 1, 0, "REBUILDING_STALL", 9),
        (f"{E}, {G}", 4, 0, "READ_AVAILABILITY_LOSS", None),
        (f"{E}, {G}", 4, 0, "REBUILDING_STALL", None),
        (f"{E}, {G}", 4, 0, "RECOVERY_LOSS", None),
    ]
    assert not any(row["already"] for row in rows)


@pytest.mark.parametrize("seed", range(10))
def test_the_largest_set_is_the_largest(seed: int, tmp_path: Path) -> None:
    """Against every set of bookies, each judged by the check itself: one of the largest size, and it is safe."""
    random = Random(f"largest {seed}")
    names = BOOKIES[: random.randint(4, 6)]
    ledgers = []
    for number in range(random.randint(1, 4)):
        size = random.randint(1, 3)
        write = random.randint(1, size)
        members = random.sample(names, size)
        if random.random() < 0.3:
            ledgers.append(opened(number, *members, write=write, ack=random.randint(1, write)))
        else:
            ledgers.append(closed(number, *members, write=write, last=random.choice((-1, 0, 1, 9))))
    made = write_catalog(tmp_path / "catalog", names, ledgers)
    limit: dict[str, Any] = {"most_unavailable": random.choice((25, 60, 100))}
    target = random.choice(list(ImpactTarget))
    largest = ask(made, taken=Taken(target=target), most=len(names), **limit).largest
    assert largest is not None
    assert largest.is_exact
    sizes = [
        len(chosen)
        for size in range(1, len(names) + 1)
        for chosen in combinations(names, size)
        if str(ask(made, taken=Taken((chosen,), target=target), **limit).verdict) == "SAFE"
    ]
    assert len(largest.bookies) == max(sizes, default=0)
    if largest.bookies:
        assert str(ask(made, taken=Taken((largest.bookies,), target=target), **limit).verdict) == "SAFE"


def test_the_largest_set_of_wide_ledgers(tmp_path: Path) -> None:
    """Sixteen copies on sixteen of twenty bookies: four may go, for a member that goes needs one of the other four."""
    names = [f"bk{number:02}:3181" for number in range(20)]
    made = write_catalog(tmp_path / "catalog", names, [closed(1, *names[:16], write=16)])
    largest = ask(made, most=20, most_unavailable=100).largest
    assert largest is not None
    assert (len(largest.bookies), largest.is_exact) == (4, True)


def test_a_copy_of_a_store_is_not_asked_for_several_captures(catalog: Dataset) -> None:
    """It would be the same each time."""
    with pytest.raises(InputError, match="looked back"):
        ask(catalog, (A,), stable_for=3)


@pytest.mark.spark
def test_spark_answers_the_same(catalog: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same function over the same ranges: counts, sample and rows are equal."""
    alone = ask(catalog, (A, B), drill=DomainLevel.BOOKIE, out=tmp_path / "alone")
    monkeypatch.setattr(check, "ROWS_PER_RANGE", 1)
    spread = ask(catalog, (A, B), drill=DomainLevel.BOOKIE, out=tmp_path / "spread", master="local[2]")
    assert (alone.spread, spread.spread) == (False, True)
    assert replace(spread, spread=False, sample=()) == replace(alone, sample=())
    assert sorted(spread.sample, key=str) == sorted(alone.sample, key=str)
    one, two = (open_dataset(tmp_path / name, "impact").read("impacts") for name in ("alone", "spread"))
    assert one.equals(two)
    assert spread.cache.age_s == timedelta(minutes=1).total_seconds()
