"""`scripts/pack collect`: one file, alone in a folder that is the whole system, collects as bkmeta does."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from PyInstaller.archive.readers import CArchiveReader

from recovery.dataset import open_dataset
from tests.support import command
from tests.support.cases import cache_home, case_dir, truth

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

CASE: Final = "c09"
"""Bookies of both kinds: one with RocksDB."""
LIBRARIES: Final = ("c.so.6", "m.so.6", "dl.so.2", "pthread.so.0", "rt.so.1", "util.so.1", "z.so.1")
LOADER: Final = "ld-linux-x86-64.so.2"
SYSTEM: Final = tuple(f"lib{name}" for name in LIBRARIES)
"""The C library and zlib, which every such Linux has; the file brings the rest."""
NAMES: Final = ("b1", "b4")
MOST_UNPACKED: Final = 150_000_000
DEVICES: Final = ("null", "zero", "urandom")
FOLDERS: Final = ("bin", "dev/shm", "lib64", "proc", "tmp")
IN_ROOT: Final = """
mount -t proc proc "$0/proc"; mount -t tmpfs shm "$0/dev/shm"
for device in null zero urandom; do mount --bind "/dev/$device" "$0/dev/$device"; done
exec chroot "$0" /bkmeta-collect "$@"
"""


@pytest.fixture(scope="module")
def packed() -> Path:
    """What `scripts/pack collect` makes; kept until something that goes into it changes."""
    names = ["uv.lock", "scripts/pack", "scripts/collect_program"]
    roots = [command.ROOT / name for name in (*names, "recovery", "reconcile", "backends")]
    files = sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*")) if file.is_file())
    made_of = [file for file in files if "__pycache__" not in file.parts]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in made_of)).hexdigest()[:16]
    target = cache_home() / "packed" / f"collect-{digest}"
    if not target.exists():
        for old in target.parent.glob("collect-*"):
            old.unlink()
        fresh = target.with_name(f".collect-{os.getpid()}")
        done = subprocess.run(
            [command.ROOT / "scripts" / "pack", "collect", fresh], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        fresh.rename(target)
    return target


@pytest.fixture(scope="module")
def root(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file, a bookie's disks and the C library; nothing else: no shell, no Python."""
    made = tmp_path_factory.mktemp("root")
    for folder in FOLDERS:
        (made / folder).mkdir(parents=True)
    for device in DEVICES:
        (made / "dev" / device).touch()
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    places = dict(line.split()[:: len(line.split()) - 1] for line in reversed(known.splitlines()[1:]) if " => " in line)
    for place in (Path(places[name]) for name in SYSTEM if name in places):
        inside = made / place.parent.relative_to("/")
        inside.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, inside)
    shutil.copy(places[LOADER], made / "lib64")
    shutil.copy(packed, made / "bkmeta-collect")
    shutil.copytree(case_dir(CASE) / "bookies", made / "bookies")
    return made


def run(root: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the file with nothing but its folder around it; return its exit code and result."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *as_root, "--mount", "--pid", "--fork", "sh", "-euc", IN_ROOT, str(root), *arguments, "--json"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=command.PATIENCE_S * 2,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def _list_options(bookie: Path) -> list[str]:
    """Return the folders of a bookie of the case, as `collect` takes them."""
    folders = [path for path in sorted(bookie.iterdir()) if path.is_dir()]
    return [word for path in folders for word in (f"--{path.name.rstrip('s0123456789')}-dir", str(path))]


def test_a_bookie_is_collected_where_nothing_else_is(root: Path, tmp_path: Path) -> None:
    """Each bookie's inventory has the rows that bkmeta itself gives."""
    kinds = set()
    for name in NAMES:
        options = _list_options(root / "bookies" / name)
        inside = [option.removeprefix(str(root)) for option in options]
        code, result = run(root, "collect", *inside, "--out", f"/tmp/{name}")
        own = command.process("collect", *options, "--out", tmp_path / name, "--json")
        assert (code, result["counts"]) == (own.code, own.result["counts"])
        kinds.add(result["storage"])
        for table in ("copies", "damage"):
            inventories = (open_dataset(folder, "inventory") for folder in (root / "tmp" / name, tmp_path / name))
            taken, expected = (inventory.read(table).to_pylist() for inventory in inventories)
            assert taken == expected
    assert len(kinds) == 2, kinds
    assert "db" in kinds or "mixed" in kinds, kinds


def test_it_has_five_commands_and_no_solver(root: Path, packed: Path) -> None:
    """`doctor`, `export` and `inspect` work, too; etcd's client is not in it, and unpacked it takes 150 MB at most."""
    code, healthy = run(root, "doctor")
    assert (code, {check["state"] for check in healthy["checks"]}) == (0, {"ok"})
    log = next(path for path in sorted((root / "bookies").rglob("*.log")) if path.stat().st_size)
    code, result = run(root, "inspect", str(log).removeprefix(str(root)))
    assert (code, result["counts"]["damaged"]) == (0, 0)
    (root / "ids").write_text("1\n")
    known = next(bookie["id"] for bookie in truth(CASE)["bookies"] if f"b{bookie['n']}" == NAMES[0])
    disks = ["--disk", f"{known}=/bookies/{NAMES[0]}", "--from", "/ids", "--logs"]
    code, exported = run(root, "export", *disks, "--out", "/tmp/entries")
    assert (code in (0, 3, 4), exported["counts"].get("ledgers")) == (True, 1), exported
    assert run(root, "recover")[0] == 2
    code, refused = run(root, "preflight", "--metadata", "etcd://127.0.0.1:2379/bk")
    assert (code, "without etcd's client" in refused["verdict"]) == (2, True), refused
    entries = CArchiveReader(str(packed)).toc
    assert not [name for name in entries if name.startswith(("scipy", "grpc", "pandas"))]
    unpacked = sum(size for _, _, size, _, kind in entries.values() if kind in "bx")
    assert 50_000_000 < unpacked < MOST_UNPACKED
