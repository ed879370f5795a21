"""Where the rotation of reads stands from run to run, and what every bookie is asked for at a second look."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from backends.bookie.client import BookieOptions
from reconcile.check.scrutiny.judge import Demands
from reconcile.jobs.context import WireOptions
from reconcile.jobs.scrutiny.request import SampleReads, ScrutinyRequest
from reconcile.jobs.scrutiny.sampled_look import find_sampling, note_rotations, read_missing
from reconcile.jobs.scrutiny.scrutinize import scrutinize
from reconcile.rules.segments.placement import PlacementSettings
from reconcile.rules.segments.sampled_copies import list_held, merge_samples
from recovery.bookies.entry_choice import Rotation
from recovery.bookies.sampled_reads import Sampler
from recovery.capture.live import capture
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.groups import KeyedRuns
from recovery.model.ids import LedgerId
from recovery.model.tables import SAMPLES
from tests.recovery.bookies.test_sampled_reads import list_entries
from tests.recovery.bookies.test_wire_inventory import AT, FakeBookie, Has, made_store, record
from tests.support.command import run
from tests.support.impact_question import make_context
from tests.support.waiting import free_port


def make_request(share: tuple[int, int], runs: int) -> ScrutinyRequest:
    """A run of a share."""
    demands = Demands(0.0, None, PlacementSettings())
    return ScrutinyRequest(
        uri="zk://h/l",
        out=Path("out"),
        inventories=(),
        wire=None,
        demands=demands,
        share=share,
        sample_reads=SampleReads(runs, 1e6),
    )


def make_run(rotations: Mapping[str, Any]) -> Dataset:
    """A run before, of which only the manifest is read."""
    return Dataset("run", {"kind": "scrutiny", "tables": {}, "rotations": dict(rotations)})


def test_each_share_goes_on_where_it_left_off() -> None:
    """Shares in turn would else skip the same stretches for ever; another N, or other shares, begin again."""
    earlier: Dataset | None = None
    seen = []
    for number in (1, 2, 1, 2, 1):
        request = make_request((number, 2), 3)
        sampling = find_sampling(request, earlier)
        assert sampling is not None
        seen.append((number, sampling.rotation.number))
        earlier = make_run(note_rotations(request, sampling, earlier))
    assert seen == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]
    with_more = find_sampling(make_request((1, 2), 4), earlier)
    whole = make_request((1, 1), 3)
    of_whole = find_sampling(whole, earlier)
    assert with_more is not None
    assert of_whole is not None
    assert (with_more.rotation, of_whole.rotation) == (Rotation(0, 4), Rotation(0, 3))
    assert note_rotations(whole, of_whole, earlier) == {"1/1": [0, 3]}


def test_a_run_without_reads_hands_the_rotation_on() -> None:
    """The next one that reads goes on."""
    request = make_request((1, 1), 3)
    assert note_rotations(request, None, make_run({"1/1": [4, 3]})) == {"1/1": [4, 3]}


class Asked:
    """Stands in for running bookies: what each says of entries of ledger 1."""

    targets = ("bk0", "bk1")

    def __init__(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.answers = answers
        self.runs: KeyedRuns | None = None

    def read_everywhere(self, ledgers: Any, runs: KeyedRuns, _size: Any) -> tuple[pa.Table, list[Any]]:
        self.runs = runs
        rows = [make_sample(ledger, bookie, **self.answers[bookie]) for ledger in ledgers for bookie in self.targets]
        return pa.Table.from_pylist(rows, schema=SAMPLES), []


def make_sample(
    ledger: int, bookie: str, held: range = range(0), lacks: range = range(0), **other: Any
) -> dict[str, Any]:
    """A row of SAMPLES."""
    groups = [
        [{"first": some[0], "last": some[0], "size": len(some), "period": 0}] if some else [] for some in (held, lacks)
    ]
    usual = {"bucket": 0, "scope": 0, "no_ledger": False, "failed": 0}
    counts = {"held": groups[0], "entries": len(held), "lacks": groups[1], "lacking": len(lacks)}
    return {**usual, "ledger": int(ledger), "bookie": bookie, **counts, **other}


@pytest.mark.parametrize(
    ("missing", "answers", "whole"),
    [
        (5, {"bk0": {}, "bk1": {}}, True),
        (5, {"bk0": {}, "bk1": {"failed": 1}}, False),
        (500, {"bk0": {}, "bk1": {}}, False),
        (500, {"bk0": {"no_ledger": True}, "bk1": {"no_ledger": True}}, True),
        (500, {"bk0": {"no_ledger": True}, "bk1": {}}, False),
    ],
)
def test_entries_are_lost_where_every_bookie_was_asked_for_each_of_them(
    missing: int, answers: Mapping[str, Mapping[str, Any]], whole: bool
) -> None:
    """Or says that it knows no such ledger; more than a hundred are not asked for one by one."""
    record = {"scope": 0, "ledger": 1, "write_quorum": 1, "segments": [{"first": 0, "members": ["bk0"]}]}
    group = {"first": 0, "last": 0, "size": missing, "period": 0}
    finding = {
        "scope": 0, "ledger": 1, "category": "BELOW_ACK_QUORUM", "severity": "critical", "bookies": ["bk0"],
        "entries": [group],
    }  # fmt: skip
    note = {
        **finding,
        "category": "OVER_REPLICATED",
        "severity": "info",
        "entries": [{**group, "first": 900, "last": 900}],
    }
    asked = Asked(answers)
    rows, settled = read_missing(cast(Sampler, asked), [record], [finding, note])
    assert asked.runs is not None
    assert asked.runs.first.tolist() == list(range(min(missing, 100)))
    assert (rows.num_rows, settled == frozenset({(0, 1)})) == (2, whole)


def test_answers_that_came_twice_become_one_row() -> None:
    """Each entry counts once; of two answers that differ both stay, and what a bookie gave it has."""
    rows = [
        make_sample(1, "bk0", range(5), range(5, 7)),
        make_sample(1, "bk0", range(3, 6), range(6, 7), failed=2),
        make_sample(1, "bk1", lacks=range(4), no_ledger=True),
        make_sample(2, "bk0", range(1)),
    ]
    merged = merge_samples(pa.Table.from_pylist(rows, schema=SAMPLES))
    assert list_entries(merged, "held") == {(1, "bk0"): set(range(6)), (2, "bk0"): {0}}
    assert list_entries(merged, "lacks") == {(1, "bk0"): {5, 6}, (1, "bk1"): set(range(4))}
    told = {(row["ledger"], row["bookie"]): row for row in merged.to_pylist()}
    assert (told[1, "bk0"]["entries"], told[1, "bk0"]["lacking"], told[1, "bk0"]["failed"]) == (6, 2, 2)
    assert told[1, "bk1"]["no_ledger"]
    copies = list_held(merged)
    assert {(row["ledger"], row["bookie"], row["first"], row["last"]) for row in copies.to_pylist()} == {
        (1, "bk0", 0, 5), (2, "bk0", 0, 0),
    }  # fmt: skip
    assert not np.any(copies["complete"].to_numpy())


def make_bookie(lacks: Collection[tuple[int, int]], without: Collection[int] = ()) -> FakeBookie:
    """A bookie that gives no lists, and has ten entries of each ledger but for what it lacks."""
    return FakeBookie(
        {
            ledger: Has(records={n: record(ledger, n) for n in range(10) if (ledger, n) not in lacks}, silent=True)
            for ledger in range(8)
            if ledger not in without
        }
    )


def test_n_runs_find_each_missing_entry_and_what_was_found_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ends in every run, the middle once in N; each as grave as lists would have it; the sums hold.

    After N runs every copy was read, and counts as judged: the run says how many of them earlier runs had read.
    """
    # An end, an entry that is nowhere, one in the middle, a ledger that a bookie does not know, one that another has.
    one = make_bookie({(1, 9), (2, 0), (3, 4), (6, 9)})
    two, three = make_bookie({(2, 0)}, without=(4,)), make_bookie({(2, 0)}, without=(0, 1, 2, 3, 4, 7))
    with one.running() as first, two.running() as second, three.running() as third:
        names = tuple(f"127.0.0.1:{address.port}" for address in (first, second, third))
        ledgers = {LedgerId(0, n): names[:2] for n in range(8)} | {LedgerId(0, 5): (names[0], names[2])}
        source = made_store(ledgers, dict.fromkeys(names, b""), names)
        with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
            capture(source, "/ledgers", None, out, clock=lambda: AT)
        in_the_middle, healthy, judged = [], [], []
        for number in range(3):
            before = ["--since", tmp_path / f"run-{number - 1}"] if number else []
            done = run(
                capsys, "scrutinize", "--metadata", tmp_path / "catalog", "--sample-reads", "--sample-runs", 3,
                "--deadline", 1, "--patience", 0.1, "--recheck-after", "0s", *before,
                "--out", tmp_path / f"run-{number}", "--json",
            )  # fmt: skip
            ended = open_dataset(tmp_path / f"run-{number}", "scrutiny")
            found = {row["ledger"]: row["category"] for row in ended.read("findings").to_pylist() if row["bookies"]}
            sampled, counts = done.result["coverage"]["sampled"], done.result["counts"]
            assert (done.code, sampled["run"], sampled["runs"], sampled["failed"]) == (3, number + 1, 3, 0)
            assert sampled["held"] + sampled["lacking"] == sampled["asked"] < sampled["copies"] == 160
            assert (sampled["read_earlier"] > 0) is (sampled["oldest_read"] is not None) is (number > 0)
            judged.append(done.result["coverage"]["judged"])
            assert done.result["coverage"]["positions"] == 160
            assert counts["listed"] == counts["clean"] + sum(counts["undecided"].values()) + counts["with_findings"]
            in_the_middle.append(found.pop(3, None))
            assert found == {
                1: "BELOW_WRITE_QUORUM", 2: "ENTRY_LOST", 4: "BELOW_WRITE_QUORUM", 6: "ENTRIES_MISPLACED",
            }  # fmt: skip
            verdicts = {row["ledger"]: (row["verdict"], row["reason"]) for row in ended.read("verdicts").to_pylist()}
            healthy.append({verdicts[ledger] for ledger in (0, 5, 7)})
    seen_in = in_the_middle.index("BELOW_WRITE_QUORUM")
    assert in_the_middle == [None] * seen_in + ["BELOW_WRITE_QUORUM"] * (3 - seen_in)
    assert judged[0] < judged[1] < judged[2] == 160
    assert healthy[0] == {("clean", None), ("undecided", "sampled")}
    assert healthy[2] == {("clean", None)}


def test_a_bookie_that_comes_back_is_read_from_whatever_it_turns_out_to_be(tmp_path: Path) -> None:
    """Away at the first look, so that nobody knows that it gives no lists: a later look reads, and its copies count."""
    port = free_port()
    waited: list[float] = []
    there, away = make_bookie({(6, 9)}), make_bookie({(7, 4)})
    with ExitStack() as stack:
        names = (str(stack.enter_context(there.running())), f"127.0.0.1:{port}")
        source = made_store({LedgerId(0, n): names for n in range(8)}, dict.fromkeys(names, b""), names)
        with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
            capture(source, "/ledgers", None, out, clock=lambda: AT)
        request = replace(
            make_request((1, 1), 1),
            uri=str(tmp_path / "catalog"), out=tmp_path / "run",
            wire=WireOptions(BookieOptions(deadline_s=2.0, patience_s=0.1), {}),
            recheck_after_s=60.0,
        )  # fmt: skip

        def come_back(seconds: float) -> None:
            waited.append(seconds)
            stack.enter_context(away.running(port))

        done = scrutinize(request, make_context(), wait=come_back)
    assert waited == [60.0]
    assert done.coverage["silent"] == [names[1]]
    assert (done.clean, done.undecided, done.found["BELOW_WRITE_QUORUM"]) == (6, {}, 2)
    # Of ledger 6 a finding stood twice before the bookie was back.
    assert (done.coverage["judged"], done.coverage["positions"]) == (150, 160)
    ended = open_dataset(tmp_path / "run", "scrutiny")
    reads = {row["ledger"]: row["entries"] for row in ended.read("reads").to_pylist() if row["bookie"] == names[1]}
    assert reads == {ledger: 9 if ledger == 7 else 10 for ledger in range(8) if ledger != 6}
