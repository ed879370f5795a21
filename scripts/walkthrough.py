"""The demo: a sample cluster's metadata is lost, and comes back by the commands of the runbook, on a real ZooKeeper.

The disks and the ZooKeeper data were written by BookKeeper 4.17.2 and ZooKeeper 3.9.3 (tests/data/bookkeeper has
their provenance), and what was true was recorded then; the last step compares with that, field by field.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from recovery.dataset import open_dataset
from tests.support.cases import case_dir, truth
from tests.support.zookeeper_server import ZooKeeperServer

CASE: Final = "c01-clean-sorted"
IDENTITY: Final = "bkmeta:demo"
PROGRAM: Final = Path(os.environ.get("BKMETA_DEMO_PROGRAM") or Path(sys.executable).with_name("bkmeta"))
"""What is shown: this checkout's, or another installation's."""
_NO_TRACE: Final = (
    "Ledgers without an entry, E where there are fewer entries than bookies, A, and custom metadata leave no trace on "
    "bookies: where they differ they were assumed, and the report grades them so. Give `recover` a snapshot "
    "(--snapshot) or --default-quorum and they are not."
)
_BOLD: Final = sys.stdout.isatty() and "NO_COLOR" not in os.environ
_FIELDS: Final = {
    "E": "ensemble_size",
    "W": "write_quorum",
    "A": "ack_quorum",
    "state": "state",
    "last": "last_entry",
    "length": "length",
    "digest": "digest",
}


def bold(text: str) -> str:
    """Return the text, bold on a terminal."""
    return f"\033[1m{text}\033[0m" if _BOLD else text


def step(title: str, why: str) -> None:
    """Print the head of a step."""
    print(f"\n{bold(title)}\n{textwrap.fill(why, 100)}\n", flush=True)


def bkmeta(*words: object, expect: Sequence[int] = (0,)) -> str:
    """Run one command as a user would, and show it with what it prints; give its output back.

    Raises:
        SystemExit: its exit code is none of the expected ones.
    """
    line = ["bkmeta", *map(str, words)]
    print(bold("$ " + shlex.join(line)), flush=True)
    ran = subprocess.run([PROGRAM, *line[1:]], capture_output=True, text=True)  # noqa: PLW1510 - looked at below
    print(textwrap.indent(ran.stdout + ran.stderr, "  "))
    print(f"  exit code {ran.returncode}\n", flush=True)
    if ran.returncode not in expect:
        raise SystemExit(f"the demo expected exit code {expect}; this is a defect, please report it")
    return ran.stdout + ran.stderr


def hash_in(output: str) -> str:
    """Return the hash that a command printed to be confirmed."""
    found: list[str] = re.findall(r"\b[0-9a-f]{64}\b", output)
    return found[-1]


def wipe(hosts: str, root: str) -> int:
    """Lose the metadata: remove all below the root, as a re-created ensemble would have it; return the nodes."""
    client = KazooClient(hosts=hosts)
    client.start()
    try:
        removed = 0
        for child in client.get_children(root):
            client.delete(f"{root}/{child}", recursive=True)
            removed += 1
        return removed
    finally:
        client.stop()
        client.close()


def compare(catalog: Path, was: Mapping[str, Any]) -> list[str]:
    """Compare a catalog with what was true, field by field; return the lines to print."""
    rows = {row["ledger"]: row for row in open_dataset(catalog, "catalog").read("ledgers").to_pylist()}
    true = {row["ledger"]: row for row in was["ledgers"]}
    with_entries = {ledger for ledger, row in true.items() if row["entries"]}
    back = with_entries & set(rows)
    lines = [
        f"ledgers with an entry         {len(back)} of {len(with_entries)} are back",
        f"ledgers without any entry     {len(set(true) & set(rows) - with_entries)} of {len(true) - len(with_entries)}",
        f"ledgers that never were       {len(set(rows) - set(true))}",
    ]
    for short, name in _FIELDS.items():
        names = {"MAC": "HMAC"}
        equal = sum(rows[i][name] == names.get(true[i][short], true[i][short]) for i in back)
        lines.append(f"{name.replace('_', ' '):<30}{equal} of {len(back)} equal")
    same = sum(_write_sets(rows[i], true[i]) for i in back)
    lines.append(f"{'bookies of every entry':<30}{same} of {len(back)} equal")
    return lines


def _write_sets(row: Mapping[str, Any], true: Mapping[str, Any]) -> bool:
    """Whether a reader is sent to the same bookies for every entry."""

    def members(segments: Sequence[tuple[int, Sequence[str]]], write: int, entry: int) -> frozenset[str]:
        ensemble = next(m for first, m in reversed(segments) if first <= entry)
        return frozenset(ensemble[(entry + i) % len(ensemble)] for i in range(write))

    now = [(s["first"], s["members"]) for s in row["segments"]]
    return all(
        members(now, row["write_quorum"], entry) == members(true["segments"], true["W"], entry)
        for entry in range(true["last"] + 1)
    )


def main() -> None:
    """Walk through the runbook."""
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="bkmeta-demo-"))
    case, was = case_dir(CASE), truth(CASE)
    os.environ["BKMETA_ZK_AUTH"] = IDENTITY
    disks = work / "bookies"
    shutil.copytree(case / "bookies", disks)
    (work / "zookeeper").mkdir()
    shutil.copytree(case / "zookeeper", work / "zookeeper" / "data")
    passwords = work / "passwords.txt"
    passwords.touch(0o600)
    passwords.write_text("".join(f"{password}\n" for password in was["passwords"]))
    bookies = work / "bookies.txt"
    bookies.write_text("".join(f"{b['id']}\n" for b in was["bookies"]))
    server = ZooKeeperServer(work / "zookeeper")
    server.start()
    try:
        _walk(work, server, was, disks, passwords, bookies)
    finally:
        server.kill()
    print(f"\n{bold('The report:')} {work / 'plan' / 'report.html'}")
    print(
        f"Everything of this demo is in {work}; it took {time.monotonic() - began:.0f} s. Remove it when you are done."
    )


def _walk(
    work: Path, server: ZooKeeperServer, was: Mapping[str, Any], disks: Path, passwords: Path, bookies: Path
) -> None:
    root = was["root"]
    uri = f"zk+hierarchical://{server.hosts}{root}"
    store = ("--metadata", uri)
    names = [f"b{b['n']}" for b in was["bookies"]]
    inventories = [work / "inv" / name for name in names]
    of_inventories = [word for path in inventories for word in ("--inventory", path)]
    of_disks = [word for b in was["bookies"] for word in ("--disk", f"{b['id']}={disks / ('b' + str(b['n']))}")]

    step("A healthy cluster", f"Disks of four real bookies in {disks}, and the ZooKeeper that knew them, started here.")
    bkmeta("capture", *store, "--out", work / "before")

    step("The accident", f"All that ZooKeeper has below {root} is lost; the root itself is there, empty and valid.")
    print(f"  {wipe(server.hosts, root)} nodes and everything below them removed\n")

    step("1. preflight", "What to do first, and whether data can be deleted right now. Read it before anything else.")
    bkmeta("preflight", *store, expect=(3,))

    step(
        "2. freeze",
        "Bookies that run must not list an empty store. First the changes are shown, then made by their hash.",
    )
    journal = ("--journal", work / "freeze")
    shown = bkmeta("freeze", *store, *journal, expect=(5,))
    bkmeta("freeze", *store, *journal, "--confirm", hash_in(shown))

    step("3. collect", "On each bookie's host, or on its mounted disks: what it holds. Reads only; no Java, no Spark.")
    for name, out in zip(names, inventories, strict=True):
        folders = ("--ledger-dir", disks / name / "ledgers", "--journal-dir", disks / name / "journal")
        bkmeta("collect", *folders, "--passwords", passwords, "--out", out)

    step("4. recover", "All inventories together: the lost records, worked out, and a plan to write them.")
    plan = work / "plan"
    asked = ("--passwords", passwords, "--expect-bookies", bookies, "--out", plan)
    # So few ledgers need no Spark; a master that is named has it carry them.
    bkmeta("recover", *of_inventories, *store, *asked, "--master", "local[2]")

    step("5. plan show", "Review it. Nothing has been written yet.")
    bkmeta("plan", "show", plan)

    step("6. rehearse", "The same writes into a root that nobody uses, read back from there and from the disks.")
    bkmeta("rehearse", plan, "--metadata", f"zk+hierarchical://{server.hosts}/rehearsal", *of_disks, "--sample", "all")

    step("7. apply", "Now for real: created, never written over; journalled; read back; cookies last.")
    plan_hash = json.loads((plan / "manifest.json").read_text())["hash"]
    bkmeta("apply", plan, *store, "--confirm", plan_hash)

    step(
        "8. verify",
        "Every entry of every ledger, read through the new records from the bookies' disks, digests checked.",
    )
    bkmeta("verify", plan, *store, "--sample", "all", *of_disks)

    step("9. thaw", "The store names every ledger again, so the bookies may list it.")
    shown = bkmeta("thaw", *store, *journal, *of_inventories, expect=(5,))
    bkmeta("thaw", *store, *journal, *of_inventories, "--confirm", hash_in(shown))

    step("What came back", "The store now, against what was true before the accident.")
    bkmeta("capture", *store, "--out", work / "after")
    for line in compare(work / "after", was):
        print(f"  {line}")
    print(textwrap.indent(textwrap.fill(_NO_TRACE, 96), "  "))


if __name__ == "__main__":
    main()
