"""An archive proven by itself: every digest, and that nothing is missing: `archive verify`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reconcile.jobs.context import Context, start_spark, throttle
from recovery.archive.choice import drop_repeated
from recovery.archive.objects import RUN_FILE, RUNS, ArchiveIndex, list_indexes, list_names, list_unfinished, read_run
from recovery.archive.reader import (
    ReadBackProof,
    find_ledger,
    make_ledger,
    prove_ledger,
    read_index,
    require_archive,
    unreadable,
)
from recovery.errors import DatasetError
from recovery.model.ids import LedgerId, mix
from recovery.place import DatasetPlace, to_place
from recovery.spark import over_buckets, require_spark

_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyArchiveRequest:
    """What is proven.

    Attributes:
        place: of the archive.
        ledgers: these only; empty: all.
        sample: so many of all, drawn by a hash of their ids and `seed`; None: all.
        seed: another one draws others.
        master: Spark's, whose tasks read an index file each; None: this process reads all.
        python: what executors run as their Python; None: what they have.
    """

    place: DatasetPlace
    ledgers: tuple[LedgerId, ...] = ()
    sample: int | None = None
    seed: int = 0
    master: str | None = None
    python: Path | None = None


@dataclass(frozen=True, slots=True)
class VerifiedArchive:
    """What came of it.

    Attributes:
        ledgers: that the archive has, each once.
        twice: of these, those that are there more than once.
        proven, damaged: ledgers that were read.
        entries, bytes: of the proven ones.
        unproven: entries of these that carry no digest which their record could check.
        problems: the first damaged ledgers, each with what is wrong.
        missing: ledgers that were named, and that it does not have.
        broken: indexes, and lists of runs, that are gone or damaged.
        unlisted: runs that did not come to their end: nothing shows how much they would have copied.
        unfinished: objects that no index names.
    """

    ledgers: int
    twice: int
    proven: int
    damaged: int
    entries: int
    bytes: int
    unproven: int
    problems: Mapping[str, str]
    missing: tuple[str, ...]
    broken: tuple[str, ...]
    unlisted: tuple[str, ...]
    unfinished: tuple[str, ...]


def verify_archive(request: VerifyArchiveRequest, context: Context) -> VerifiedArchive:
    """Prove an archive, or ledgers of it, from its place alone.

    Raises:
        DatasetError: the place is no archive, or cannot be reached.
    """
    place = request.place.absolute()
    require_archive(place)
    try:
        indexes, unfinished = list_indexes(place), list_unfinished(place)
        broken, unlisted = _check_runs(place, indexes)
    except OSError as error:
        raise unreadable(str(place), error) from error
    chosen, ledgers, twice = _choose(request, place, indexes, broken)
    counts: Counter[str] = Counter()
    problems: dict[str, str] = {}
    if request.ledgers:
        answers: Iterator[Mapping[str, Any]] = iter([_prove_named(place, request.ledgers, indexes, context)])
    else:
        answers = _prove_indexes(request, place, chosen, context)
    missing: list[str] = []
    for answer in answers:
        counts.update(answer["counts"])
        problems.update(list(answer["problems"].items())[: _NAMED - len(problems)])
        missing += answer.get("missing", ())
    return VerifiedArchive(
        ledgers,
        twice,
        counts["proven"],
        counts["damaged"],
        counts["entries"],
        counts["bytes"],
        counts["unproven"],
        problems,
        tuple(missing),
        tuple(broken),
        tuple(unlisted),
        tuple(unfinished),
    )


def _check_runs(place: DatasetPlace, indexes: Sequence[ArchiveIndex]) -> tuple[list[str], list[str]]:
    """Return what is gone of what runs say that they wrote, and the runs that say nothing."""
    broken, unlisted = [], []
    files = {index.file for index in indexes}
    for run in list_names(place / RUNS):
        file = place / RUNS / run / RUN_FILE
        if not file.is_file():
            if any(index.run == run for index in indexes):
                unlisted.append(run)
            continue
        try:
            listed = read_run(file)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            broken.append(f"{RUNS}/{run}/{RUN_FILE}")
            continue
        broken += [name for name in listed if name not in files]
    return broken, unlisted


def _choose(
    request: VerifyArchiveRequest, place: DatasetPlace, indexes: Sequence[ArchiveIndex], broken: list[str]
) -> tuple[list[tuple[str, list[int]]], int, int]:
    """Return the places of ledgers that are read in each index, how many there are, and how many are there twice."""
    keys, total = [], 0
    for number, index in enumerate(indexes):
        try:
            own = read_index(place, index, ("bucket", "scope", "ledger"))
        except DatasetError:
            broken += [index.file] if index.file not in broken else []
            continue
        total += own.num_rows
        place_in_index = pa.array(np.arange(own.num_rows))
        keys.append(
            own.append_column("index", pa.repeat(pa.scalar(number, pa.int64()), own.num_rows)).append_column(
                "row", place_in_index
            )
        )
    if not keys:
        return [], 0, 0
    once = drop_repeated(pa.concat_tables(keys))
    if request.sample is not None:
        scope, ledger = once["scope"].to_numpy(), once["ledger"].to_numpy()
        order = np.argsort(mix(scope ^ request.seed, ledger), kind="stable")[: request.sample]
        drawn = once.take(pa.array(np.sort(order)))
    else:
        drawn = once
    of_index = drawn["index"].to_numpy()
    chosen = [
        (indexes[number].file, drawn["row"].to_numpy()[of_index == number].tolist())
        for number in np.unique(of_index).tolist()
    ]
    return chosen, once.num_rows, total - once.num_rows


def _prove_indexes(
    request: VerifyArchiveRequest, place: DatasetPlace, chosen: Sequence[tuple[str, list[int]]], context: Context
) -> Iterator[Mapping[str, Any]]:
    if request.master is None or not chosen:
        with context.reporter.progress("proving", "parts") as progress:
            for done, (file, rows) in enumerate(chosen, 1):
                yield prove_index(str(place), file, rows)
                progress(done, len(chosen))
        return
    require_spark(request.master, request.python)
    where, parts = str(place), list(chosen)

    def task(number: range) -> Mapping[str, Any]:
        file, rows = parts[number.start]
        return prove_index(where, file, rows)

    with (
        start_spark(request.master, request.python, context) as spark,
        context.reporter.progress("proving", "parts") as progress,
    ):
        ranges = [range(number, number + 1) for number in range(len(parts))]
        yield from over_buckets(spark, task, ranges, done=throttle(progress))


def prove_index(where: str, file: str, rows: Sequence[int]) -> Mapping[str, Any]:
    """Prove ledgers of an index file; return counts, and the first problems."""
    place = to_place(where)
    first, last = file.rpartition("/")[2].split("-")[:2]
    try:
        listed = (
            read_index(place, ArchiveIndex(file, int(first), int(last))).take(pa.array(rows, pa.int64())).to_pylist()
        )
    except DatasetError as error:
        return {"counts": {"damaged": len(rows)}, "problems": {file: error.problem}}
    counts: Counter[str] = Counter()
    problems: dict[str, str] = {}
    for row in listed:
        ledger = LedgerId(row["scope"], row["ledger"])
        try:
            proof = prove_ledger(place, make_ledger(row, f"{where}/{file}"))
        except DatasetError as error:
            proof = ReadBackProof(ledger, error.problem)
        _count(proof, counts, problems)
    return {"counts": dict(counts), "problems": problems}


def _prove_named(
    place: DatasetPlace, ledgers: Sequence[LedgerId], indexes: Sequence[ArchiveIndex], context: Context
) -> Mapping[str, Any]:
    counts: Counter[str] = Counter()
    problems: dict[str, str] = {}
    missing = []
    with context.reporter.progress("proving", "ledgers") as progress:
        show = throttle(progress)
        for done, ledger in enumerate(ledgers, 1):
            try:
                archived = find_ledger(place, ledger, indexes)
            except DatasetError as error:
                _count(ReadBackProof(ledger, f"{error.path}: {error.problem}"), counts, problems)
            else:
                if archived is None:
                    missing.append(str(ledger))
                else:
                    _count(prove_ledger(place, archived), counts, problems)
            show(done, len(ledgers))
    return {"counts": counts, "problems": problems, "missing": missing}


def _count(proof: ReadBackProof, counts: "Counter[str]", problems: dict[str, str]) -> None:
    if proof.problem:
        counts["damaged"] += 1
        if len(problems) < _NAMED:
            problems[str(proof.ledger)] = proof.problem
        return
    counts.update(proven=1, entries=proof.entries, bytes=proof.size, unproven=proof.unproven)
