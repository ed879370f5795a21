"""Parsers fuzzed along the branches of their own code: inputs that reach a new one are kept and changed further.

    python -m tests.property.guided FOLDER COUNT [PARSER...]

Needs atheris (`scripts/soak guided` brings it along). What a run keeps stays in FOLDER, a folder of files for each
parser, so that the next one begins there. An input that breaks a bound ends its parser's run with a traceback, and is
left in FOLDER as crash-…, timeout-… or oom-….
"""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

_SECONDS: Final = 60
_MEMORY_MIB: Final = 2048
_LARGEST: Final = 8192
_ROUND: Final = 25_000
"""Inputs of one process: instrumented code keeps up to 40 KB for each, which plain code does not."""
_ALONE: Final = "--alone"


def _fuzz(folder: Path, count: int, name: str) -> None:
    """Fuzz one parser until it has had so many inputs; the process ends with it."""
    import atheris  # noqa: PLC0415 - only here, and only where it was asked for

    with atheris.instrument_imports(include=["backends", "recovery", "reconcile"]):
        from tests.support.fuzzing import attempt  # noqa: PLC0415 - what is loaded before is not instrumented
        from tests.support.parsers import PARSERS  # noqa: PLC0415 - as above

    corpus = folder / hashlib.sha256(name.encode()).hexdigest()[:8]
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in PARSERS[name].seeds():
        (corpus / hashlib.sha256(seed).hexdigest()).write_bytes(seed)
    options = [f"-runs={count}", f"-timeout={_SECONDS}", f"-rss_limit_mb={_MEMORY_MIB}", f"-max_len={_LARGEST}"]
    atheris.Setup([name, str(corpus), f"-artifact_prefix={folder}/", *options], lambda raw: attempt(name, raw))
    atheris.Fuzz()


def main() -> None:
    """Fuzz parsers one after the other, each in a process of its own."""
    folder, count, *names = sys.argv[1:]
    if names[:1] == [_ALONE]:
        _fuzz(Path(folder), int(count), names[1])
        return
    from tests.support.parsers import PARSERS  # noqa: PLC0415 - the other process must load it itself

    for name in names or PARSERS:
        left, code = int(count), 0
        while left > 0 and not code:
            some = str(min(left, _ROUND))
            alone = [sys.executable, "-m", "tests.support.guided_fuzzing", folder, some, _ALONE, name]
            code = subprocess.run(alone, check=False).returncode
            left -= _ROUND
        sys.stdout.write(f"{name}: {f'broke one (exit code {code})' if code else 'kept its bounds'}\n")


if __name__ == "__main__":
    main()
