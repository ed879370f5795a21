"""The command lines of the service, as lists of arguments; foreign text is never taken for an option."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

OUTPUT: Final = ("--json", "--progress", "json")
"""How every command prints its result and its progress."""
OWN: Final = (
    "--metadata", "--out", "--json", "--progress", "--buckets", "--since", "--baseline", "--master", "--catalog",
    "--max-age", "--evidence",
)  # fmt: skip
"""Options that the service sets itself."""
OF_BACKUP: Final = ("--metadata", "--to", "--keep", "--json", "--progress")
"""Options of `backup follow` that the service sets itself."""
OVER_WIRE: Final = ("--wire",)
"""How bookies are read, unless the configuration sets it."""
ON_SPARK: Final = ("scrutinize", "drill")
"""Jobs that get Spark's master as an argument."""
GOING_ON: Final = ("scrutinize", "orphans")
"""Jobs that continue from the run before: the age of a finding decides its severity."""
_TARGET: Final = "down"


def build_argv_job(name: str, uri: str, out: Path, arguments: Sequence[str], master: str = "") -> list[str]:
    """Return the command of a job that is run by a schedule."""
    words = build_argv_master(master) if name in ON_SPARK else []
    return [name, "--metadata", uri, "--out", str(out), *words, *arguments]


def build_argv_share(share: int, shares: int) -> list[str]:
    """Return the arguments for a scrutiny's share of the ledgers."""
    return ["--buckets", f"{share}/{shares}"]


def build_argv_since(since: Path | None) -> list[str]:
    """Return the arguments that name the run before, which the command continues; None: there is none."""
    return [] if since is None else ["--since", str(since)]


def build_argv_master(master: str) -> list[str]:
    """Return the arguments for Spark's master of a command; empty: its default."""
    return [f"--master={master}"] if master else []


def build_argv_evidence(runs: Sequence[Path]) -> list[str]:
    """Return the arguments that name the scrutinies a command may use."""
    return [word for run in runs for word in ("--evidence", str(run))]


def build_argv_captures(captures: Path, max_age_s: float) -> list[str]:
    """Return the arguments that name the captures a command may use."""
    return ["--catalog", str(captures), f"--max-age={max_age_s:.0f}s"]


def build_argv_impact(uri: str, bookies: Sequence[str], domains: Sequence[str], target: str) -> list[str]:
    """Return the command that checks whether bookies, or all of some domains, may be taken away."""
    words = ["check-impact", "--metadata", uri, f"--target={target or _TARGET}"]
    words += [f"--bookies={','.join(bookies)}"] if bookies else []
    return [*words, *(f"--domain={name}" for name in domains)]


def build_argv_explain(uri: str, ledger: str) -> list[str]:
    """Return the command that explains a ledger."""
    return ["explain", ledger, "--metadata", uri]


def build_argv_status(uri: str, ledgers: Sequence[str], scope: int) -> list[str]:
    """Return the question where deletes are: of some ledgers, or of all of a scope where none is named."""
    return ["delete", "status", "--metadata", uri, *(ledgers or [f"--ledger-scope-id={scope}"])]


def build_argv_request(target: Sequence[str], ledgers: Path, reason: str, soak: str) -> list[str]:
    """Return the command that asks for deletes."""
    words = ["delete", "request", *target, "--from", str(ledgers), f"--reason={reason}"]
    return [*words, f"--soak={soak}"] if soak else words


def build_argv_verify(
    target: Sequence[str], ledgers: Path | None, certificate: Path | None, confirmed: int
) -> list[str]:
    """Return the command that verifies the deletes of some ledgers, or all due ones."""
    words = ["delete", "verify", *target]
    words += ["--due"] if ledgers is None else ["--from", str(ledgers)]
    words += [] if certificate is None else ["--certificate", str(certificate)]
    return [*words, f"--confirm={confirmed}"] if confirmed else words


def build_argv_purge(target: Sequence[str], certificate: Path, confirmed: str, approvals: Sequence[Path]) -> list[str]:
    """Return the command that purges the ledgers of a certificate that people approved."""
    words = ["delete", "purge", *target, "--certificate", str(certificate)]
    words += [word for path in approvals for word in ("--approval", str(path))]
    return [*words, f"--confirm={confirmed}"] if confirmed else words


def build_argv_backup(uri: str, to: str, keep: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that follows the store into a backup."""
    words = ["backup", "follow", "--metadata", uri, "--to", to, *(["--keep", keep] if keep else [])]
    return [*words, *arguments]


def build_argv_target(uri: str, journal: Path, acl: str) -> list[str]:
    """Return the arguments that name the store for a command of deletes."""
    words = ["--metadata", uri, "--journal", str(journal)]
    return [*words, f"--acl={acl}"] if acl else words
