"""The opening of a RocksDB, tried in a process of its own that ends in time: damaged files can make it last for ever.

One wrong bit in a MANIFEST is enough: the library then loops while it opens the database, and hears no signal. What the
system ends, it ends also then: the process has a timer for its own processor time, and one for the time on the wall.
The first finds what loops; the second only what waits, for longer than any disk that answers.

Source: RocksDB 9, tried with every byte of a manifest in turn.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import rocksdict

CONFIG: Final = "rocksdict-config.json"
"""Written by the library even when it only reads: through a link it would be written into the original folder."""
_WAIT_S: Final = 600.0
"""Beyond the processor time."""
TRIAL: Final = "try-rocksdb"
"""First argument of a packed program for a trial: it has no Python interpreter to call."""
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[3:]; from backends.rocks_trial import main; main()"


def open_links(links: Path, *, is_forgiving: bool) -> rocksdict.Rdict:
    """Open a private folder of links to a database's files.

    Args:
        links: the folder.
        is_forgiving: records of the write-ahead log that are damaged are passed over; else only one that is cut off at
            its end.
    """
    modes = rocksdict.DBRecoveryMode
    options = rocksdict.Options(raw_mode=True)
    options.set_max_open_files(-1)  # all table files at once, so that their removal does no harm later
    options.set_wal_recovery_mode(
        modes.skip_any_corrupted_record() if is_forgiving else modes.tolerate_corrupted_tail_records()
    )
    access = rocksdict.AccessType.read_only(error_if_log_file_exist=False)
    return rocksdict.Rdict(str(links), options, access_type=access)


def try_opening(links: Path, within_s: float) -> str | None:
    """Open a private folder of links elsewhere; return why it must not be opened here, None if it may.

    Whether it can be opened is not said: the library says that better here.

    Args:
        links: the folder.
        within_s: seconds of processor time that the opening may take.

    Raises:
        ChildProcessError: the other process did not come to try it.
    """
    is_packed = getattr(sys, "frozen", False)
    start = [TRIAL] if is_packed else ["-I", "-S", "-c", _PROGRAM]
    program = [sys.executable, *start, str(links), str(within_s), *([] if is_packed else sys.path)]
    null = subprocess.DEVNULL
    with subprocess.Popen(program, stdin=null, stdout=null, stderr=null) as child:
        try:
            code = child.wait()
        finally:
            child.kill()
    if code > 0:
        raise ChildProcessError(f"a process that was to try it ended with {code}")
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return f"the library does not end opening it: it was stopped after {within_s:.0f} s of work"
    return f"the library crashes when it opens the database ({signal.Signals(-code).name})" if code else None


def main() -> None:
    """Open the database of the command line, and end; see `try_opening`."""
    within_s = float(sys.argv[2])
    signal.setitimer(signal.ITIMER_PROF, within_s)
    signal.setitimer(signal.ITIMER_REAL, within_s + _WAIT_S)
    links = Path(sys.argv[1])
    for is_forgiving in (False, True):
        try:
            open_links(links, is_forgiving=is_forgiving).close()
            break
        except Exception:  # noqa: BLE001, S110 - rocksdict raises nothing narrower; who asked finds out itself
            pass
        finally:
            with suppress(OSError):
                (links / CONFIG).unlink()
    os._exit(0)  # nothing is left to release
