"""What somebody tries who installed bkmeta by its pages: the demo by that installation, the service with its figures.

    python -m scripts.newcomer demo PROGRAM      the demo, whose commands are those of PROGRAM
    python -m scripts.newcomer service PROGRAM   `conf write`, the service with its metrics, and the dashboard's figures

`scripts/soak newcomer` installs each way and runs both.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.support.waiting import free_port, until
from tests.support.zookeeper_server import ZooKeeperServer

PATIENCE_S: Final = 180.0


def main() -> None:
    """Run one of both."""
    what, program = sys.argv[1:]
    if what == "demo":
        environment = {**os.environ, "BKMETA_DEMO_PROGRAM": program}
        sys.exit(subprocess.run([sys.executable, "-m", "scripts.walkthrough"], env=environment, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        try_service(program, Path(folder))


def try_service(program: str, folder: Path) -> None:
    """Write the examples, change what the pages say must be changed, start the service, and ask for its figures."""
    subprocess.run([program, "conf", "write", folder / "conf"], check=True, stdout=subprocess.DEVNULL)
    server = ZooKeeperServer(folder / "zookeeper")
    server.start()
    health = free_port()
    text = (folder / "conf/serve.toml").read_text()
    for key, value in (
        ("metadata", f"zk+hierarchical://{server.hosts}/ledgers"),
        ("data", str(folder / "data")),
        ("http", f"127.0.0.1:{free_port()}"),
        ("grpc", f"127.0.0.1:{free_port()}"),
        ("health", f"127.0.0.1:{health}"),
        ("anonymous", "read"),
    ):
        text, found = re.subn(rf'^(# )?{key} = "[^"]*"', f'{key} = "{value}"', text, count=1, flags=re.MULTILINE)
        if found != 1:
            raise SystemExit(f"conf/serve.toml has no {key}")
    # What --check names as missing on this host.
    (folder / "inventories").mkdir()
    (folder / "racks.txt").touch()
    text = text.replace("/var/lib/bkmeta/inventories", f"{folder}/inventories")
    text = text.replace("/etc/bkmeta/racks.txt", f"{folder}/racks.txt")
    config = folder / "serve.toml"
    config.write_text(text)
    try:
        client = KazooClient(server.hosts)
        client.start()
        client.ensure_path("/ledgers/available")
        client.create("/ledgers/LAYOUT", b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1")
        client.create("/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000001")
        client.stop()
        client.close()
        subprocess.run([program, "serve", "--config", config, "--check"], check=True)
        with (folder / "log").open("wb") as log:
            service = subprocess.Popen([program, "serve", "--config", config], stdout=log, stderr=log)
            try:
                until(
                    lambda: "bookkeeper_metadata_service_leads 1" in ask(health, "metrics"),
                    "the service shows its figures",
                    PATIENCE_S,
                )
                shown = set(re.findall(r"^(bookkeeper_metadata_\w+)", ask(health, "metrics"), re.MULTILINE))
            finally:
                service.terminate()
                service.wait()
    finally:
        server.kill()
    board = json.loads((folder / "conf/grafana-dashboard.json").read_text())
    asked = set(re.findall(r"bookkeeper_metadata_\w+", " ".join(re.findall(r'"expr": "([^"]*)"', json.dumps(board)))))
    print(
        f"the dashboard asks for {len(asked)} figures; a service without a run yet shows {len(asked & shown)} of them"
    )


def ask(port: int, page: str) -> str:
    """Return a page of the service; nothing, where it does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            text: str = answer.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return ""


if __name__ == "__main__":
    main()
