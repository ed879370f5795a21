"""The row of a whole restore: from the disks of all bookies to a store whose ledgers are read back."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from benchmarks.data import cluster_disks
from benchmarks.data.cache import kept
from benchmarks.data.cluster_disks import BOOKIES, JOURNAL, LEDGERS, WITH_INDEX, folder_of
from benchmarks.data.inventories import identity
from benchmarks.data.ledgers import INSTANCE, PASSWORD
from benchmarks.data.plans import RECORDS, write_records
from benchmarks.measure import Cost, RunFailedError, bkmeta, run
from benchmarks.pairs import Contestant
from benchmarks.rows.bookie_files import build_program, cat
from benchmarks.rows.row import Place, Row, require_whole
from benchmarks.servers.zookeeper import BATCH, BATCHES, client, server
from recovery.codecs import cookie, store
from recovery.codecs.store import COOKIES, Layout
from recovery.dataset import open_dataset

_ROOT: Final = "/ledgers"
_LAYOUT: Final = Layout.HIERARCHICAL
_SAMPLE: Final = 1000


@contextmanager
def _whole(place: Place) -> Iterator[dict[str, Contestant]]:
    disks = kept(place.home, cluster_disks.write, place.ledgers)
    java = client(place.home)
    plan, records = place.scratch / "plan", place.scratch / RECORDS
    passwords, expected = place.scratch / "passwords", place.scratch / "bookies"
    passwords.touch(0o600)
    passwords.write_bytes(PASSWORD + b"\n")
    expected.write_text("".join(f"{name}\n" for name in BOOKIES))
    iterate = build_program(place, "iterate", "RocksDB's C API (librocksdb-dev)", "-lrocksdb")
    with server() as hosts:
        uri = f"zk+{_LAYOUT.value}://{hosts}{_ROOT}"

        def empty() -> None:
            """Leave what a wiped store has that an operator prepared: a root with its layout and its cookies."""
            run([*java, "delete", hosts, _ROOT])
            held = ZooKeeperStore(hosts)
            nodes = {store.LAYOUT: store.layout_bytes(_LAYOUT), store.INSTANCE_ID: INSTANCE.encode()}
            nodes |= {f"{COOKIES}/{name}": cookie.encode(identity(name)) for name in BOOKIES}
            held.write([Write(_ROOT + key, value) for key, value in nodes.items()])
            held.close()

        def product() -> Cost:
            empty()
            for left in (*place.scratch.glob("inventory-*"), plan):
                shutil.rmtree(left, ignore_errors=True)
            stages: dict[str, list[Cost]] = {}

            def do(stage: str, *words: object, codes: tuple[int, ...] = (0,)) -> Cost:
                command = bkmeta(stage, *words, "--json", "--progress", "none")
                stages.setdefault(stage, []).append(cost := run(command, codes=codes))
                return cost

            held = []
            for number in range(len(BOOKIES)):
                folder, out = folder_of(disks, number), place.scratch / f"inventory-{number}"
                folders = ("--ledger-dir", folder / LEDGERS, "--journal-dir", folder / JOURNAL)
                do("collect", *folders, "--out", out)
                held += ["--inventory", out]
            wanted = ("--metadata", uri, "--passwords", passwords, "--expect-bookies", expected)
            plan_hash = do("recover", *held, *wanted, "--out", plan).said["hash"]
            written = do("apply", plan, "--metadata", uri, "--confirm", plan_hash)
            shown = [
                word for number, name in enumerate(BOOKIES) for word in ("--disk", f"{name}={folder_of(disks, number)}")
            ]
            verified = do("verify", plan, "--metadata", uri, "--sample", _SAMPLE, *shown)
            if verified.said["exit_code"] or verified.said["counts"]["ledgers"]["readable"] != min(
                _SAMPLE, place.ledgers
            ):
                raise RunFailedError(f"verify says {verified.said}")
            return require_whole(place, _sum_up(stages, written.said["counts"]["create ledger"]["written"]))

        def floor() -> Cost:
            parts = [cat(folder_of(disks, number)) for number in range(WITH_INDEX)]
            parts += [
                run([str(iterate), str(folder_of(disks, number) / LEDGERS / "current" / "locations")])
                for number in range(WITH_INDEX, len(BOOKIES))
            ]
            actions = open_dataset(plan, "plan").batches("actions")
            write_records((batch.filter(pc.equal(batch["kind"], "ledger")) for batch in actions), records)
            run([*java, "delete", hosts, _ROOT])
            parts.append(run([*java, "create", hosts, _ROOT, str(records), str(BATCH), str(BATCHES)]))
            return Cost(
                sum(cost.seconds for cost in parts),
                sum(cost.cpu_s for cost in parts),
                {"": max(cost.peaks[""] for cost in parts)},
                {"ledgers": place.ledgers},
            )

        yield {"collect … verify": product, "cat, C loop, Java's creates": floor}


def _sum_up(stages: Mapping[str, list[Cost]], written: int) -> Cost:
    """Return what all stages took, one after another, and a note with the share of each."""
    sums = {
        stage: Cost(sum(cost.seconds for cost in costs), sum(cost.cpu_s for cost in costs), {}, {})
        for stage, costs in stages.items()
    }
    whole = Cost(
        sum(cost.seconds for cost in sums.values()),
        sum(cost.cpu_s for cost in sums.values()),
        {stage: max(cost.peaks[""] for cost in costs) for stage, costs in stages.items()},
        {"ledgers": written},
    )
    shares = "; ".join(
        f"{stage} {cost.seconds:.1f} s ({cost.seconds / whole.seconds:.0%}), cpu {cost.cpu_s:.1f} s"
        for stage, cost in sums.items()
    )
    return replace(whole, said={**whole.said, "note": shares})


ROWS: Final = (
    Row(
        "restore",
        3.0,
        "four bookies' disks, half index files, half RocksDB: `collect`, `recover`, `apply` to a real ZooKeeper and "
        f"`verify` of {_SAMPLE:,} ledgers, whole commands; against cat of the index files, a C loop over RocksDB and "
        "Java's asynchronous client that creates the same nodes",
        1_000_000,
        _whole,
        fewest=1,
    ),
)
