"""A command loads what it needs: a small one must not take seconds to start.

Modules are named and counted, since times depend on the machine. Each command runs in a process of its own, a fork of
one that has loaded what every command loads, and Arrow where the command's row allows it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.cases import case_dir
from tests.support.command import ROOT, commands, environment
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan

pytestmark = pytest.mark.long

PROBE: Final = """
import importlib, json, os, signal, sys
from reconcile.cli.__main__ import main
for name in ("reconcile.cli.main", *sys.argv[1:]):
    importlib.import_module(name)
for line in sys.stdin:
    *words, said = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
        sys.argv = ["bkmeta", *words]
        try:
            main()
        finally:
            print(json.dumps(sorted(sys.modules)), file=sys.stderr, flush=True)
            os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
SLOW: Final = ("pandas", "scipy", "pyspark", "py4j", "jinja2", "grpc", "kazoo", "rich", "rocksdict", "pyarrow")
"""What takes a tenth of a second to load, or more."""
MOST: Final = 700
"""Modules of any command; scrutinize has 689, a quarter of them ours. With pandas 1,200, with scipy.optimize 750."""
MOST_OF_ALL: Final = 760
"""Of a command that asks a live store and reads files of bookies: drill, which captures and recovers, had 710."""
FEW: Final = 218
"""Modules of a command that only prints; `recover --help` has 201."""
ZOOKEEPER: Final = "zk+hierarchical://127.0.0.1:1/ledgers"
ETCD: Final = "etcd://127.0.0.1:1/ledgers"

TEXT: Final = frozenset[str]()
ARROW: Final = frozenset({"pyarrow"})
FILES: Final = ARROW | {"rocksdict"}
LIVE: Final = ARROW | {"kazoo"}
ALLOWED: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "--version": ("--version", TEXT),
    "recover help": ("recover --help", TEXT),
    "first ten minutes": ("preflight", TEXT),
    "preflight": ("preflight --metadata {zookeeper} --inventory {inventory}", LIVE),
    "preflight, etcd": ("preflight --metadata {etcd}", ARROW | {"grpc"}),
    "freeze": ("freeze --metadata {zookeeper} --journal {out}", LIVE),
    "thaw": ("thaw --metadata {zookeeper}", LIVE),
    "collect": ("collect --ledger-dir {disk} --out {out}", FILES | {"jinja2"}),
    "capture": ("capture --metadata {zookeeper} --out {out}", LIVE),
    "backup follow": ("backup follow --metadata {etcd} --to {out}", ARROW | {"grpc"}),
    "backup list": ("backup list {out}", ARROW),
    "backup verify": ("backup verify {out}", ARROW),
    "backup observer": ("backup observer --zookeeper 127.0.0.1:1 --dir {out}", LIVE),
    "backup prune": ("backup prune {out} --keep 1d", ARROW),
    "capture files": ("capture --metadata zkfiles://{disk} --out {out}", ARROW),
    "rescue": ("rescue status --out {out}", TEXT),
    "recover": ("recover --layout hierarchical --inventory {disk} --out {out}", FILES | {"jinja2"}),
    "undelete": ("undelete --metadata {zookeeper} --history zkfiles://{disk} --out {out}", LIVE),
    "explain": ("explain 1 --inventory {inventory}", ARROW),
    "explain a plan": ("explain 1 --plan {plan}", ARROW),
    "plan show": ("plan show {plan}", ARROW),
    "plan ledgers": ("plan ledgers {plan} --few-copies", ARROW),
    "plan diff": ("plan diff {plan} {plan}", ARROW),
    "plan split": ("plan split {plan} --out {out} --waves canary,rest", ARROW),
    "plan edit": ("plan edit {plan} --out {out} --drop 1", ARROW),
    "scrutinize": ("scrutinize --metadata {zookeeper} --out {out}", LIVE),
    "scrutiny diff": ("scrutiny diff {odd} {odd}", ARROW),
    "drill": ("drill --metadata {zookeeper} --inventory {inventory} --out {out}", LIVE | FILES | {"jinja2"}),
    "rehearse": ("rehearse {plan} --metadata {zookeeper}", LIVE),
    "apply": ("apply {plan} --metadata {zookeeper} --confirm {hash}", LIVE),
    "undo": ("undo {plan} --metadata {zookeeper}", LIVE),
    "audit show": ("audit show {plan}", TEXT),
    "audit verify": ("audit verify {plan}", TEXT),
    "verify": ("verify {plan} --metadata {zookeeper} --disk a={disk}", LIVE),
    "export": ("export 1 --disk a={disk} --out {out}", FILES),
    "check-impact": ("check-impact --metadata {zookeeper} --catalog {out}", LIVE),
    "orphans": ("orphans --metadata {zookeeper} --out {out}", LIVE),
    "delete request": ("delete request 1 --metadata {zookeeper}", LIVE),
    "delete verify": ("delete verify 1 --metadata {zookeeper} --inventory {inventory}", LIVE),
    "delete purge": ("delete purge --metadata {zookeeper} --certificate {odd}", LIVE),
    "delete confirm": ("delete confirm --metadata {zookeeper} --inventory {inventory}", LIVE),
    "delete undo": ("delete undo 1 --metadata {zookeeper}", LIVE),
    "delete status": ("delete status 1 --metadata {zookeeper}", LIVE),
    "delete policy show": ("delete policy show --metadata {zookeeper}", LIVE),
    "delete policy set": ("delete policy set --breaker 1 --metadata {zookeeper}", LIVE),
    "approve": ("approve {plan} --key {odd} --out {out}", ARROW),
    "tombstones list": ("tombstones list --metadata {zookeeper}", LIVE),
    "tombstones expire": ("tombstones expire --metadata {zookeeper}", LIVE),
    "tombstones decommission": ("tombstones decommission b:1 --metadata {zookeeper}", LIVE),
    "archive run": ("archive run --metadata {zookeeper} --wire --to {out}", LIVE | FILES),
    "archive verify": ("archive verify --from {out}", FILES),
    "archive read": ("archive read 1 --from {out} --out {out}", FILES),
    "archive mark": ("archive mark 1 --metadata {zookeeper}", LIVE),
    "archive unmark": ("archive unmark 1 --metadata {zookeeper}", LIVE),
    "archive show": ("archive show 1 --metadata {zookeeper}", LIVE),
    "serve": ("serve --config {serve} --check", TEXT),
    "ask": ("ask get-status --service 127.0.0.1:1", ARROW | {"grpc"}),
    "conf write": ("conf write {out}", TEXT),
    "certificate check": ("certificate check {odd}", ARROW),
    "inspect": ("inspect {odd}", FILES),
    "inspect a log": ("inspect {log}", FILES),
    "inspect --account": ("inspect --account {log}", FILES),
    "doctor": ("doctor --no-spark", ARROW),
}
"""A command line of each command, and what of the slow it may load."""


Loaded = Callable[[frozenset[str], list[str]], list[str]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Run a command to its end; return the names of the modules that its process has."""
    said = tmp_path_factory.mktemp("said") / "output"
    with ExitStack() as stack:
        probes: dict[bool, subprocess.Popen[str]] = {}

        def run(allowed: frozenset[str], words: list[str]) -> list[str]:
            if (has_arrow := bool(allowed)) not in probes:
                command = [sys.executable, "-c", PROBE, *(["pyarrow.parquet"] if has_arrow else [])]
                env = environment(BKMETA_PATIENCE_S="0.1")
                probe = subprocess.Popen(
                    command, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                probes[has_arrow] = stack.enter_context(probe)
            probe = probes[has_arrow]
            assert probe.stdin is not None
            assert probe.stdout is not None
            said.unlink(missing_ok=True)
            probe.stdin.write(json.dumps([*words, str(said)]) + "\n")
            probe.stdin.flush()
            assert probe.stdout.readline() == "0\n", said.read_text()
            assert "fault of this program" not in said.read_text(), said.read_text()
            names: list[str] = json.loads(said.read_text().splitlines()[-1])
            return names

        yield run


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the command lines name: disks, an inventory, a plan, 16 bytes that are no file of a bookie."""
    work = tmp_path_factory.mktemp("given")
    made = write_plan(work / "plan", [Ledger(1, [(0, ("a", "b", "c"))])])
    write_inventory(work / "inventory", "a", [1], instance=None)
    (work / "odd").write_bytes(bytes(range(16)))
    disk = case_dir("c05-unclosed") / "bookies" / "b0" / "ledgers"
    return {
        "plan": str(work / "plan"),
        "hash": str(made.manifest["hash"]),
        "inventory": str(work / "inventory"),
        "odd": str(work / "odd"),
        "serve": str(ROOT / "conf" / "serve.toml"),
        "disk": str(disk),
        "log": str(disk / "current" / "0.log"),
        "zookeeper": ZOOKEEPER,
        "etcd": ETCD,
    }


@pytest.mark.parametrize("named", ALLOWED)
def test_a_command_loads_no_more_than_it_needs(
    named: str, given: dict[str, str], loaded: Loaded, tmp_path: Path
) -> None:
    """Nothing slow but what its row names, and no flood of small modules either."""
    line, allowed = ALLOWED[named]
    names = loaded(allowed, [word.format(**given, out=tmp_path / "out") for word in line.split()])
    assert {name for name in SLOW if name in names} <= allowed
    most = MOST_OF_ALL if {"kazoo", "rocksdict"} <= allowed else MOST
    assert len(names) <= (most if allowed else FEW)


def test_every_command_has_its_row() -> None:
    """A new command is looked at, too."""
    rows = {line for line, _ in ALLOWED.values()}
    assert [name for name in commands() if not any(row.startswith(name) for row in rows)] == []


CODECS: Final = sorted(path.stem for path in (ROOT / "recovery" / "codecs").glob("*.py") if path.name != "__init__.py")
COLUMN_CODECS: Final = frozenset(
    {
        "keys",
        "ledger_columns",
        "ledger_metadata",
        "managed_ledger",
        "packing",
        "pulsar_compression",
        "pulsar_message",
        "replication_mark",
    }
)
"""Codecs that decode or encode columns, or decompress: they need Arrow."""
MOST_OF_A_CODEC: Final = 330
"""Modules of one codec: Python has 50, NumPy 140, Arrow 30, Protobuf 50. There were 660 with pandas."""
OTHER_CODECS: Final = {
    "blocking_cookie": {"cookie"},
    "entry_frames": {"entry"},
    "entry_log": {"entry", "framing"},
    "framing": {"entry"},
    "journal": {"entry", "framing"},
    "keys": {"packing", "store", "store_kind"},
    "ledger_columns": {"ledger_record"},
    "ledger_metadata": {"entry", "ledger_columns", "ledger_record", "packing"},
    "managed_ledger": {"pulsar_compression"},
    "pulsar_message": {"pulsar_compression"},
    "replication_lock": {"store", "store_kind"},
    "store": {"store_kind"},
}
"""Codecs that are made of others."""
CODEC_PROBE: Final = """
import importlib, json, os, sys
import numpy
for codec in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(f"recovery.codecs.{codec}")
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(codec)
"""
"""Each codec in a process of its own, a fork of one that has loaded NumPy, which nearly all of them need."""


@pytest.fixture(scope="module")
def loaded_by_codecs() -> dict[str, list[str]]:
    """Return the names of the modules of a process that loads nothing but one codec, by its name."""
    command = [sys.executable, "-c", CODEC_PROBE, *CODECS]
    done = subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(zip(CODECS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_loads_itself(codec: str, loaded_by_codecs: dict[str, list[str]]) -> None:
    """A program of one's own that decodes one format pays for that format only."""
    names = loaded_by_codecs[codec]
    assert {name for name in SLOW if name in names} <= (ARROW if codec in COLUMN_CODECS else TEXT)
    own = {name.split(".")[2] for name in names if name.startswith("recovery.codecs.")} - {"_pb"}
    assert own == {codec, *OTHER_CODECS.get(codec, ())}
    assert len(names) <= MOST_OF_A_CODEC
