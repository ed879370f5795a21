"""A run of reads of single entries: what it says before it begins, and what it leaves behind."""

import logging
from pathlib import Path

import pytest

from backends.bookie.client import BookieOptions
from recovery.bookies.addresses import read_members
from recovery.bookies.entry_choice import Rotation
from recovery.bookies.sampling import Sampled, SamplePlan, SampleRequest, Sampling, sample_bookies
from recovery.capture.live import capture
from recovery.dataset import DatasetWriter, open_dataset
from recovery.model.ids import BUCKETS, LedgerId
from tests.recovery.bookies.test_wire_inventory import AT, FakeBookie, Has, made_store, record


def test_a_plan_names_the_run_all_runs_the_bytes_and_the_days() -> None:
    """50 TB on 20 bookies; the longest record of all takes more runs than the others."""
    plan = SamplePlan(20, 50_000_000_000, 2_000_000_000, 50 * 10**12, 18 * 10**11, 9000.0, 1)
    assert plan.describe(Sampling(Rotation(62, 30), 10e6)) == (
        "run 3 of 30 reads 2,000,000,000 of 50,000,000,000 copies of entries from 20 bookies that give no lists; they "
        "read about 1.8 TB of 50.0 TB for it; at 10 MB a second and a bookie this takes about 2.5 hours; all 30 runs "
        "take about 3.1 days of reading; with one run a day each copy was read after 30 days; ledgers that are so "
        "long that they take more runs: 1"
    )


def test_runs_that_take_longer_than_a_day_promise_no_run_a_day() -> None:
    """The same 50 TB on 20 bookies in a single run at 10 MB a second."""
    plan = SamplePlan(20, 50_000_000_000, 50_000_000_000, 50 * 10**12, 50 * 10**12, 250_000.0, 0)
    text = plan.describe(Sampling(Rotation(0, 1), 10e6))
    assert text.endswith("2.9 days of reading; with one run after the other each copy was read after 2.9 days")


def test_a_run_says_what_it_will_cost_and_keeps_what_bookies_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bookie has all, one lacks an entry; several tasks write one dataset, and add up."""
    ledgers = range(40)
    bookies = [
        FakeBookie(
            {n: Has(records={e: record(n, e) for e in range(10) if (n, e) != lacks}, silent=True) for n in ledgers}
        )
        for lacks in (None, (7, 3))
    ]
    with bookies[0].running() as first, bookies[1].running() as second:
        names = tuple(f"127.0.0.1:{address.port}" for address in (first, second))
        source = made_store({LedgerId(0, n): names for n in ledgers}, dict.fromkeys(names, b""), ())
        with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
            capture(source, "/ledgers", None, out, clock=lambda: AT)
        sampling = Sampling(Rotation(0, 1), 1e9)
        request = SampleRequest(
            catalog=open_dataset(tmp_path / "catalog", "catalog"),
            members=read_members(source, "/ledgers", None, {}), wanted=names,
            options=BookieOptions(deadline_s=5.0), sampling=sampling, tasks=3, buckets=range(BUCKETS),
        )  # fmt: skip
        with caplog.at_level(logging.WARNING):
            sampled = sample_bookies(request, tmp_path / "samples", lambda task, ranges: [task(r) for r in ranges])
    assert "run 1 of 1 reads 800 of 800 copies of entries from 2 bookies" in caplog.text
    assert [(one.bookie, one.asked, one.held, one.lacking, one.failed) for one in sampled.bookies] == [
        (names[0], 400, 400, 0, 0), (names[1], 400, 399, 1, 0),
    ]  # fmt: skip
    rows = sampled.open().read("samples")
    assert rows.num_rows == 80
    lacking = [row for row in rows.to_pylist() if row["lacking"]]
    assert [(row["ledger"], row["bookie"], row["lacks"][0]["first"]) for row in lacking] == [(7, names[1], 3)]
    assert [(sampled.plan.copies, sampled.plan.asked, sampled.plan.longer)] == [(800, 800, 0)]


def test_a_cluster_without_ledgers_leaves_an_empty_dataset(tmp_path: Path) -> None:
    """There is something to open all the same."""
    source = made_store({}, {"127.0.0.1:1": b""}, ())
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as out:
        capture(source, "/ledgers", None, out, clock=lambda: AT)
    request = SampleRequest(
        catalog=open_dataset(tmp_path / "catalog", "catalog"),
        members=read_members(source, "/ledgers", None, {}), wanted=("127.0.0.1:1",),
        options=BookieOptions(), sampling=Sampling(Rotation(0, 30), 1e6), tasks=1, buckets=range(BUCKETS),
    )  # fmt: skip
    sampled = sample_bookies(request, tmp_path / "samples", lambda task, ranges: [task(r) for r in ranges])
    assert isinstance(sampled, Sampled)
    assert sampled.open().rows("samples") == 0
