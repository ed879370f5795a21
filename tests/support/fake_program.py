"""In place of the program: says what it was asked, holds a lock while it runs, and waits while a file is there.

    python tests/support/fake_program.py WORD... --json --progress none

The environment names a folder, BKMETA_FAKE:
    log        a line for each command: its words, as JSON; "OVERLAP" where another one ran at the same time
    hold       while it is there, commands wait
    answer     JSON: keys of the result that is printed; exit_code among them
It imports nothing of the project: it starts in some 20 ms.
"""

import fcntl
import json
import os
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
        while (folder / "hold").exists():
            time.sleep(0.02)
        if "--out" in words:
            out = Path(words[words.index("--out") + 1])
            out.mkdir(parents=True)
            (out / "manifest.json").write_text("{}")
        answer = {"verdict": f"did {words[0]}", "exit_code": 0, "counts": {"failing": 0}, "coverage": {}}
        given = folder / "answer"
        if given.exists():
            answer |= json.loads(given.read_text())
        sys.stdout.write(json.dumps(answer) + "\n")
        return int(str(answer["exit_code"]))


if __name__ == "__main__":
    sys.exit(main())
