"""Shell scripts run on other hosts: all that is done there is a script for `sh`, with bytes in and bytes out."""

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from reconcile.cli.rescue.hosts import Host, Transport
from reconcile.errors import ReconcileError

_CONNECT_S: Final = 15
_SSH: Final = ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}", "-o", "ServerAliveInterval=10")


class HostError(ReconcileError):
    """A host could not be reached, or a script failed there; its argument says which, and why."""


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """What a script gave: its exit code, and what it wrote."""

    code: int
    out: bytes
    err: str


def make_command(host: Host, script: str) -> list[str]:
    """Return the command of this machine that runs a script on a host."""
    match host.transport:
        case Transport.LOCAL:
            return ["sh", "-c", script]
        case Transport.SSH:
            return [*_SSH, "--", host.host, f"sh -c {shlex.quote(script)}"]
        case Transport.KUBECTL:
            namespace, _, rest = host.host.partition("/")
            pod, _, container = rest.partition("/")
            named = ["-c", container] if container else []
            return ["kubectl", "-n", namespace, "exec", "-i", pod, *named, "--", "sh", "-c", script]
        case Transport.COMMAND:
            return ["sh", "-c", host.command.replace("{script}", shlex.quote(script))]


def make_own_command(*words: object) -> list[str]:
    """Return the command of this machine that runs this program, and ends with the process that started it."""
    guard = [sys.executable, "-m", "reconcile.service.runs.guarded", str(os.getpid()), "0"]
    return [*guard, sys.executable, "-m", "reconcile.cli", *map(str, words)]


def run_script(host: Host, script: str, *, stdin: bytes | Path = b"", stdout: IO[bytes] | None = None) -> ScriptAnswer:
    """Run a script on a host.

    Args:
        host: where.
        script: of POSIX sh.
        stdin: what it reads: bytes, or a file.
        stdout: file that takes what it writes; None: the answer has it.

    Raises:
        HostError: this machine has no such transport.
    """
    source = stdin.open("rb") if isinstance(stdin, Path) else None
    try:
        done = subprocess.run(
            make_command(host, script),
            stdin=source,
            input=None if source is not None or isinstance(stdin, Path) else stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise HostError(f"{host.name}: {host.transport} cannot be run here ({error.strerror})") from error
    finally:
        if source is not None:
            source.close()
    return ScriptAnswer(done.returncode, done.stdout or b"", done.stderr.decode(errors="replace").strip())


def require_done(host: Host, answer: ScriptAnswer, deed: str) -> ScriptAnswer:
    """Return the answer of a script that ended well.

    Raises:
        HostError: it did not.
    """
    if answer.code:
        last = answer.err.splitlines()[-1] if answer.err else "it said nothing"
        raise HostError(f"{host.name}: {deed} failed with code {answer.code}: {last}")
    return answer
