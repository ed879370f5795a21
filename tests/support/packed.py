"""What `scripts/pack` makes for executors, kept until the lock file or the script changes."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.support import command
from tests.support.cases import cache_home


def pack_environment() -> Path:
    """Return the packed environment; making it takes a minute."""
    made_of = [command.ROOT / "uv.lock", command.ROOT / "scripts" / "pack"]
    digest = hashlib.sha256(sys.version.encode() + b"".join(path.read_bytes() for path in made_of)).hexdigest()[:16]
    target = cache_home() / "packed" / f"{digest}.pex"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run([command.ROOT / "scripts" / "pack", fresh], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        fresh.rename(target)
    return target
