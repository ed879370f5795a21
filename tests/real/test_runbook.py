"""The runbook: every command of it is run, in its order, as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import case_dir, truth
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "operations" / "runbook.md"
CASE = "c01-clean-sorted"
EXPECTED = {"preflight --incident": 3, "freeze": 5, "thaw": 5, "undo": 5}
"""Exit codes other than 0: an empty store is a finding; what was not confirmed is refused."""
HASHED = ("plan show", "plan split", "freeze", "thaw", "undo")
"""Commands that print the hash which the next lines name."""


def commands() -> list[str]:
    """Every line of the runbook's shell blocks that runs the program."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip().startswith("bkmeta ")]


def written_file() -> str:
    """The incident file that the runbook has its reader write."""
    [block] = re.findall(r"^```toml\n(.*?)^```", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(block)


def prepare(work: Path, hosts: str) -> tuple[list[str], list[str]]:
    """Lay out what the runbook takes for granted; return names and ids of the bookies."""
    (work / "incident.toml").write_text(written_file().replace("zk1:2181", hosts))
    was, case = truth(CASE), case_dir(CASE)
    shutil.copytree(case / "bookies", work / "bookies")
    names = []
    for bookie in was["bookies"]:
        name = f"bk{bookie['n']}"
        disks = work / "bookies" / f"b{bookie['n']}"
        (work / f"{name}.conf").write_text(
            f"journalDirectories={disks / 'journal'}\nledgerDirectories={disks / 'ledgers'}\n"
        )
        names.append(name)
    (work / "passwords.txt").touch(0o600)
    (work / "passwords.txt").write_text("".join(f"{password}\n" for password in was["passwords"]))
    ids = [bookie["id"] for bookie in was["bookies"]]
    (work / "bookies.txt").write_text("\n".join(ids))
    return names, ids


def lines_for(line: str, work: Path, names: list[str], ids: list[str]) -> list[tuple[str, dict[str, str]]]:
    """What an operator makes of one line: once for each bookie where it is one's, with all disks where it names one."""
    if "$BOOKIE" in line:
        return [(line, {"BOOKIE": name, "CONF": str(work / f"{name}.conf")}) for name in names]
    disks = " ".join(
        f"--disk {i}={work / 'bookies' / name.replace('bk', 'b')}" for i, name in zip(ids, names, strict=True)
    )
    return [(line.replace("--disk BOOKIE-ID=DIR", disks), {})]


@pytest.mark.timeout(900)
def test_every_command_of_the_runbook_does_what_it_says_in_its_order(tmp_path: Path) -> None:
    """From a wiped store to readable data: only lines of the runbook, hashes taken from what they print."""
    found = commands()
    assert len(found) > 12
    shutil.copytree(case_dir(CASE) / "zookeeper", tmp_path / "zookeeper" / "data")
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    try:
        names, ids = prepare(tmp_path, server.hosts)
        wipe = "from scripts.walkthrough import wipe; import sys; wipe(sys.argv[1], '/ledgers')"
        root = Path(__file__).resolve().parents[2]
        subprocess.run([sys.executable, "-c", wipe, server.hosts], check=True, cwd=root)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        digest = "no hash was printed yet"
        for line in found:
            if (identity := tmp_path / "bkmeta-identity").exists():
                environment["BKMETA_ZK_AUTH_FILE"] = str(identity)
            for command, more in lines_for(line, tmp_path, names, ids):
                ran = subprocess.run(
                    ["bash", "-c", re.sub(r"\bHASH\b", digest, command).replace("zk1:2181", server.hosts)],
                    capture_output=True,
                    text=True,
                    cwd=tmp_path,
                    env={**environment, **more},
                    timeout=300,
                    check=False,
                )
                confirmed = "--confirm" in command
                wanted = 0 if confirmed else next((c for k, c in EXPECTED.items() if f"bkmeta {k}" in command), 0)
                assert ran.returncode == wanted, f"{command}\n{ran.stdout}\n{ran.stderr}"
                hashes = re.findall(r"\b[0-9a-f]{64}\b", ran.stdout)
                if hashes and any(f"bkmeta {c}" in command for c in HASHED):
                    digest = hashes[0]
    finally:
        server.kill()
    assert "BKMETA_ZK_AUTH_FILE" in environment, "freeze made an identity, and what came after used it"
    assert (tmp_path / "plan" / "report.html").exists()
