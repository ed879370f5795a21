"""Ledgers of histories in each of which one rule decides, and all that is said of them, a cluster a line.

They were chosen as those in which a change of one comparison, mask or condition changes something. So what becomes of
them is no promise: a test that fails shows what a change of the rules does, and whoever wanted that writes the file
anew (`rewrite`), and reads the difference. That no guarantee is broken meanwhile is asked of the same clusters.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from recovery.infer.search import Tail
from recovery.testing.cluster_judge import Quorums
from recovery.testing.evidence import Evidence
from recovery.testing.inventories import Inventory
from recovery.testing.judge import NOTHING, Reconstruct, judge
from recovery.testing.row_truth import Row
from recovery.testing.row_words import describe_segments, short_name


class Cluster(NamedTuple):
    """A cluster's history, and how it is looked at.

    Attributes:
        history, seed, count: as `recovery.testing.judge.judge` takes them.
        tail: how ledgers are closed.
        told: whether a snapshot says how many ledgers have which quorums.
        how: name of what decides.
    """

    history: str
    seed: int
    count: int
    tail: str
    told: bool
    how: str

    @property
    def name(self) -> str:
        """Return it in short, unique in a file."""
        return f"{self.history} {self.seed} {self.count} {self.tail}{' told' if self.told else ''} {self.how}"


def load(path: Path) -> dict[Cluster, Mapping[str, str]]:
    """Return clusters, and of each what becomes of some ledgers."""
    rows = map(json.loads, path.read_text().splitlines())
    return {Cluster(*cluster): decided for cluster, decided in rows}


def decide(cluster: Cluster, ways: Mapping[str, Reconstruct]) -> tuple[dict[str, str], list[str]]:
    """Return what becomes of all ledgers of a cluster, in words, and which guarantees are broken."""
    rows: list[Row] = []

    def watched(
        inventory: Inventory, *, tail: Tail = Tail.INCLUSIVE, quorums: Quorums | None = None, evidence: Evidence = NOTHING
    ) -> pa.Table:
        table = ways[cluster.how](inventory, tail=tail, quorums=quorums, evidence=evidence)
        rows.extend(table.to_pylist())
        return table

    history, seed, count, tail, told, _ = cluster
    tally = judge(history, seed, count, tail=Tail(tail), is_snapshot_known=told, reconstruct=watched)
    return {str(row["ledger"]): describe(row) for row in rows}, list(map(str, tally.violations))


def rewrite(path: Path, ways: Mapping[str, Reconstruct]) -> None:
    """Write down what becomes of the ledgers of a file now."""
    lines = []
    for cluster, decided in load(path).items():
        rows, _ = decide(cluster, ways)
        lines.append(json.dumps([cluster, {ledger: rows.get(ledger, "no row") for ledger in decided}]))
    path.write_text("".join(f"{line}\n" for line in lines))


def describe(row: Row) -> str:
    """Return all that a row says."""
    shape = "/".join(str(row[name]) for name in ("ensemble_size", "write_quorum", "ack_quorum"))
    said = [
        " ".join(str(row[name]) for name in ("outcome", "class", "reason", "reading")),
        f"{shape} {row['state']} {row['last_entry']} {row['length']} {row['digest']} {row['password']}",
    ]
    if row["segments"] is not None:
        said.append(describe_segments((segment["first"], segment["members"]) for segment in row["segments"]))
        said.append("from " + _join(segment["first_low"] for segment in row["segments"]))
        assumed = [f"{number}.{at}" for number, one in enumerate(row["segments"]) for at, is_so in enumerate(one["assumed"]) if is_so]  # fmt: skip
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
        said.append("as recorded")
    return "; ".join(said)


def _join(words: Iterable[object]) -> str:
    return " ".join(map(str, words))
