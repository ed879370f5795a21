"""The scripts that a rescue runs on hosts, of POSIX sh: a bookie found, stopped, killed, started; folders copied.

A bookie's process is known by its name, java, and by a text of its command line. A state is that of /proc: T, stopped.
Names are read by the shell itself: a host has hundreds of processes, and a program started for each takes its time.
"""

import shlex
from dataclasses import dataclass
from typing import Final

STOPPED: Final = frozenset("Tt")
_FIND: Final = """find_bookie() { for d in /proc/[0-9]*; do
{ read -r name <$d/comm; } 2>/dev/null && [ "$name" = java ] || continue
tr '\\0' ' ' <$d/cmdline 2>/dev/null | grep -qF -- PATTERN || continue
s=$(sed 's/.*) //;s/ .*//' $d/stat 2>/dev/null)
case "$s" in ''|Z|X) ;; *) echo "${d#/proc/} $s" ;; esac
done; }
"""
_WAIT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a bookie: its number, and its state as /proc has it."""

    pid: int
    state: str


def build_stop(text: str) -> str:
    """Return the script that stops a bookie's processes where they are, and lists them with their states."""
    return _build_signal(text, "STOP", '[ -z "$(find_bookie | grep -v " [Tt]$")" ]')


def build_kill(text: str) -> str:
    """Return the script that kills a bookie's processes, waits until they are gone, and lists those that are not."""
    return _build_signal(text, "KILL", '[ -z "$(find_bookie)" ]')


def build_start(start: str) -> str:
    """Return the script that starts a bookie by its own command; what that says is shown if it fails."""
    log = '"${TMPDIR:-/tmp}/bkmeta-start-$$"'
    run = f"sh -c {shlex.quote(start)} </dev/null >{log} 2>&1"
    return f"{run} || {{ cat {log} >&2; rm -f {log}; exit 1; }}; rm -f {log}"


def build_copy(folder: str) -> str:
    """Return the script that writes a folder as tar; a file that grows meanwhile is there as far as it was then."""
    return f"cd {shlex.quote(folder)} && tar -cf - . ; code=$?; [ $code -le 1 ]"


def build_hashes(folder: str) -> str:
    """Return the script that lists the SHA-256 of each file below a folder."""
    return f"cd {shlex.quote(folder)} && find . -type f -exec sha256sum {{}} +"


def parse_processes(out: bytes) -> list[Process]:
    """Return what a script lists."""
    rows = (line.split() for line in out.decode(errors="replace").splitlines())
    return [Process(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]


def _build_signal(text: str, signal: str, until: str) -> str:
    find = _FIND.replace("PATTERN", shlex.quote(text))
    kill = f"for p in $(find_bookie | cut -d' ' -f1); do kill -{signal} $p 2>/dev/null; done"
    return f"{find}{kill}\nn=0; while [ $n -lt {_WAIT_S} ]; do {until} && break; sleep 1; n=$((n+1)); done\nfind_bookie"
