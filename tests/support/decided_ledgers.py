"""Clusters of which all that is said of each ledger is kept: that of some ledgers in words, that of the others hashed.

They were chosen as those in which a change of one comparison, mask or condition changes something. So what becomes of
them is no promise: a test that fails shows what a change of the rules does, and whoever wanted that writes the file
anew (`rewrite`), and reads the difference. What is promised of such clusters, `tests.simulation.judge` has.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from recovery.infer.search import Tail
from tests.simulation.judge import Reconstruct, live
from tests.simulation.row_truth import Row
from tests.simulation.row_words import describe_segments, short_name


class Cluster(NamedTuple):
    """A cluster's history, and how it is looked at.

    Attributes:
        history, seed, ledgers: as `tests.simulation.judge.judge` takes them.
        tail: how ledgers are closed.
        told: whether a snapshot says how many ledgers have which quorums.
        how: name of what decides.
    """

    history: str
    seed: int
    ledgers: int
    tail: str
    told: bool
    how: str

    @property
    def name(self) -> str:
        """Return it in short, unique in a file."""
        return f"{self.history} {self.seed} {self.ledgers} {self.tail}{' told' if self.told else ''} {self.how}"


class Kept(NamedTuple):
    """What became of a cluster's ledgers; shown: of some, in words; others: of all others, a hash of the words."""

    shown: Mapping[str, str]
    others: str


def load(path: Path) -> dict[Cluster, Kept]:
    """Return what a file has of clusters."""
    rows = map(json.loads, path.read_text().splitlines())
    return {Cluster(*cluster): Kept(shown, others) for cluster, shown, others in rows}


def decide(cluster: Cluster, shown: Iterable[str], ways: Mapping[str, Reconstruct]) -> Kept:
    """Return what becomes of a cluster's ledgers."""
    history, seed, count, tail, told, how = cluster
    _, inventory, evidence, quorums = live(history, seed, count, is_snapshot_known=told)
    rows = ways[how](inventory, tail=Tail(tail), quorums=quorums, evidence=evidence).to_pylist()
    words = {str(row["ledger"]): describe(row) for row in rows}
    found = {ledger: words.pop(ledger, "no row") for ledger in shown}
    return Kept(found, hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16])


def rewrite(path: Path, ways: Mapping[str, Reconstruct]) -> None:
    """Write down what becomes of the ledgers of a file now."""
    kept = {cluster: decide(cluster, kept.shown, ways) for cluster, kept in load(path).items()}
    path.write_text("".join(f"{json.dumps([cluster, *kept[cluster]])}\n" for cluster in kept))


def describe(row: Row) -> str:
    """Return all that a row says."""
    shape = "/".join(str(row[name]) for name in ("ensemble_size", "write_quorum", "ack_quorum"))
    said = [
        " ".join(str(row[name]) for name in ("outcome", "class", "reason", "reading")),
        f"{shape} {row['state']} {row['last_entry']} {row['length']} {row['digest']} format {row['format']}",
    ]
    if row["segments"] is not None:
        said.append(describe_segments((segment["first"], segment["members"]) for segment in row["segments"]))
        said.append("from " + _join(segment["first_low"] for segment in row["segments"]))
        flags = [
            (number, at, flag) for number, one in enumerate(row["segments"]) for at, flag in enumerate(one["assumed"])
        ]
        assumed = [f"{number}.{at}" for number, at, flag in flags if flag]
        said += [f"assumed {_join(assumed)}"] if assumed else []
    said.append("grades " + _join(f"{name}={grade}" for name, grade in row["grades"].items() if grade != "unknown"))
    said.append(_join(f"{name}={row[name]}" for name in ("lac_low", "acked_high", "missing", "extra", "highest")))
    said.append("holders " + _join(map(short_name, row["holders"])))
    if row["holes"]:
        said.append("holes " + _join("-".join(map(str, hole.values())) for hole in row["holes"]))
    for other in row["alternatives"]:
        weight = other["weight"] if other["weight"] is None else round(other["weight"], 3)
        said.append(f"or {other['field']} {other['value']} {weight}: {other['reads_as']}")
    for one in row["contradictions"] or ():
        said.append(f"but {one['field']} {one['earlier']}, bookies: {one['bookies']}")
    if row["raw"] is not None:
        said.append(
            f"record {hashlib.sha256(row['raw']).hexdigest()[:16]}, ctime {row['ctime']}, custom {row['custom']}"
        )
    return "; ".join(said)


def _join(words: Iterable[object]) -> str:
    return " ".join(map(str, words))
