"""In place of the program: says what it was asked, holds a lock while it runs, and waits while a file is there.

    python tests/support/fake_program.py WORD... --json --progress json

The environment names a folder, BKMETA_FAKE:
    log        a line for each command: its words, as JSON; "OVERLAP" where another one ran at the same time
    hold       while it is there, commands wait
    pace       seconds that each job takes
    findings-N dataset that a scrutiny of share N copies
    answer     JSON: keys of the result that is printed; exit_code among them
It imports nothing of the project: it starts in some 20 ms.
"""

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path

SCHEDULED = ("scrutinize", "capture", "orphans", "drill")


def main() -> int:
    """Run."""
    words = sys.argv[1:]
    folder = Path(os.environ["BKMETA_FAKE"])
    with (folder / "lock").open("a") as lock, (folder / "log").open("a") as log:
        if words[0] in SCHEDULED:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.write('"OVERLAP"\n')
                log.flush()
        log.write(json.dumps([os.getppid(), *words]) + "\n")
        log.flush()
        if (folder / "hold").exists():
            sys.stderr.write('{"event": "progress", "stage": "waiting", "done": 1, "total": 2, "unit": "holds"}\n')
            sys.stderr.flush()
        while (folder / "hold").exists():
            time.sleep(0.02)
        if words[0] in SCHEDULED and (folder / "pace").exists():
            # A job takes time: without it two instances would never want to run at once, and no overlap could show.
            time.sleep(float((folder / "pace").read_text()))
        if "--out" in words:
            write(Path(words[words.index("--out") + 1]), folder, words)
        answer = {"verdict": f"did {words[0]}", "exit_code": 0, "counts": {"failing": 0}, "coverage": {}}
        given = folder / "answer"
        if given.exists():
            answer |= json.loads(given.read_text())
        sys.stdout.write(json.dumps(answer) + "\n")
        return int(str(answer["exit_code"]))


def write(out: Path, folder: Path, words: list[str]) -> None:
    """Write what a job writes."""
    share = words[words.index("--buckets") + 1].partition("/")[0] if "--buckets" in words else ""
    made = folder / f"findings-{share}"
    if made.is_dir():
        shutil.copytree(made, out)
    else:
        out.mkdir(parents=True)
        (out / "manifest.json").write_text("{}")


if __name__ == "__main__":
    sys.exit(main())
