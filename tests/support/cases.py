"""Real bookies' disks with what was true of them, unpacked when first asked for.

A case is a folder of `tests/data/bookkeeper` (see PROVENANCE.md there). Packed ones are unpacked once per user
into ``${XDG_CACHE_HOME:-~/.cache}/bkmeta/cases/<name>-<hash of the archive>``. What is returned is shared between tests
and processes: read it, or copy it with `copy_of`.
"""

import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support import paths

DATA: Final = paths.DATA / "bookkeeper"
NAMES: Final = tuple(sorted(folder.name for folder in DATA.iterdir() if (folder / "truth.json").is_file()))
_PACKED: Final = "disks.tar.gz"


def cache_home() -> Path:
    """Return the folder below which everything that tests fetch or unpack is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bkmeta"


def _source(name: str) -> Path:
    for known in NAMES:
        if known == name or known.startswith(f"{name}-"):
            return DATA / known
    raise ValueError(f"no case {name!r}; there are {', '.join(NAMES)}")


def _unpacked(source: Path) -> Path:
    packed = source / _PACKED
    target = cache_home() / "cases" / f"{source.name}-{hashlib.sha256(packed.read_bytes()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{source.name}-", dir=target.parent))
    try:
        with tarfile.open(packed) as tar:
            # Debian 12 has Python 3.11.2, where filters do not exist yet; later ones warn if none is chosen.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(fresh)  # noqa: S202 - an archive of this project
        for name in ("truth.json", "operator.json"):
            if (source / name).exists():
                shutil.copy(source / name, fresh / name)
        fresh.chmod(0o755)
        fresh.rename(target)
    except OSError:
        # Another process was first: a folder that is not empty cannot be replaced, and holds the same bytes.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


@functools.cache
def case_dir(name: str) -> Path:
    """Return the folder of a case: `bookies/`, `zookeeper/`, `zookeeper-old/`, `truth.json`, `operator.json`.

    The name may be cut at a dash: `c04` for `c04-ensemble-changes`.
    """
    source = _source(name)
    return _unpacked(source) if (source / _PACKED).exists() else source


@functools.cache
def truth(name: str) -> dict[str, Any]:
    """Return what was true of a case; its keys are described in PROVENANCE.md. Shared: do not change it."""
    facts: dict[str, Any] = json.loads((_source(name) / "truth.json").read_text())
    return facts


@functools.cache
def operator(name: str) -> dict[str, Any]:
    """Return what the people who run the cluster know without its metadata. Shared: do not change it."""
    facts: dict[str, Any] = json.loads((_source(name) / "operator.json").read_text())
    return facts


@functools.cache
def pulsar_dir() -> Path:
    """Return the folder of a cluster that Pulsar wrote to (data/pulsar/PROVENANCE.md): `bookies/`, `zookeeper/`."""
    return _unpacked(DATA.parent / "pulsar")


@functools.cache
def old_dir() -> Path:
    """Return the folder of bookies of older and newer releases (data/bookkeeper-old/PROVENANCE.md), by release."""
    return _unpacked(DATA.parent / "bookkeeper-old")


def copy_of(name: str, target: Path) -> Path:
    """Copy a case into `target/<name>`, to be written to, and return that folder."""
    source = case_dir(name)
    return Path(shutil.copytree(source, target / _source(name).name))
