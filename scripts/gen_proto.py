"""Generates the modules of every ``.proto`` file below ``proto/``, each where its path says.

    proto/recovery/codecs/_pb/x.proto  ->  recovery/codecs/_pb/x_pb2.py, x_pb2.pyi

Usage: ``python scripts/gen_proto.py [--check]``. With ``--check`` nothing is written, and the exit code is 1 if a
generated module is not current. Needs ``uv``: the compiler runs in an environment of its own, since the version whose
output runs on protobuf 5.29 to 7 cannot be installed beside protobuf 7.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMPILER: Final = ("uv", "tool", "run", "--from", "grpcio-tools==1.71.*", "python", "-m", "grpc_tools.protoc")


def generate(target: Path) -> list[Path]:
    """Write all generated modules below a folder.

    Returns:
        Their paths, relative to it.
    """
    sources = sorted(path.relative_to(ROOT / "proto").as_posix() for path in (ROOT / "proto").rglob("*.proto"))
    options = [f"--{output}_out={target}" for output in ("python", "pyi")]
    subprocess.run([*COMPILER, f"-I{ROOT / 'proto'}", *options, *sources], check=True)
    stems = [source.removesuffix(".proto") for source in sources]
    return [Path(stem + ending) for stem in stems for ending in ("_pb2.py", "_pb2.pyi")]


def stale() -> list[Path]:
    """Return the generated modules that are missing, outdated, or have no source any more."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        made = generate(target)
        wrong = [
            path
            for path in made
            if not (ROOT / path).is_file() or (ROOT / path).read_bytes() != (target / path).read_bytes()
        ]
    found = (
        path.relative_to(ROOT)
        for top in ("recovery", "reconcile", "backends")
        for path in (ROOT / top).rglob("*_pb2*.py*")
    )
    return wrong + sorted(path for path in found if path.suffix in (".py", ".pyi") and path not in made)


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a generated module is not current")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    wrong = stale()
    for path in wrong:
        print(f"not current: {path}; run scripts/gen_proto.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
