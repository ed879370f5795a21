"""Pipelines of others, over TLS: a Java client that is generated from the proto; curl's way; who is not let in."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from backends.registry import open_store
from reconcile.jobs.impact.cache import find_newest
from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.client import ask_service
from reconcile.service.api.methods import METHODS, ApiError
from reconcile.service.config import read_config
from reconcile.service.server import RunningService, start_service
from recovery.codecs.store import Layout, ledger_key
from recovery.model.ids import LedgerId
from tests.support import certificates
from tests.support.command import environment, run
from tests.support.deletes import BOOKIES, Ledger, fill_zookeeper, write_looks, write_references
from tests.support.java_client import start_client
from tests.support.service import TOKEN, make_context, write_config
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(40))


@dataclass(frozen=True, slots=True)
class Site:
    """A service over TLS, of a cluster of forty ledgers."""

    running: RunningService
    uri: str
    root: str
    folder: Path

    def look(self) -> None:
        """Make what verifications read: inventories of all bookies, and references, none of which names a ledger."""
        shutil.rmtree(self.folder / "inventories", ignore_errors=True)
        write_looks(self.folder / "inventories", LEDGERS)
        write_references(self.folder / "refs.jsonl", ())

    def has_record(self, ledger: int) -> bool:
        """Whether the store has a record of a ledger."""
        with open_store(self.uri) as opened:
            return opened.store.get(self.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))) is not None


@pytest.fixture(scope="module")
def site(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """It runs the real program."""
    folder = tmp_path_factory.mktemp("clients")
    certificates.authority(folder, "ca")
    certificates.signed(folder, "service", "ca")
    root = f"/{folder.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    given = ["--inventory-dir", str(folder / "inventories"), "--references", str(folder / "refs.jsonl")]
    more = f"[requests]\ndelete_verify = {json.dumps([*given, '--min-age', '0s'])}\n"
    path = write_config(folder, uri, "one", folder / "data", more=more, session="30s")
    tls = f'tls_cert = "{folder / "service.crt"}"\ntls_key = "{folder / "service.key"}"\n'
    path.write_text(path.read_text().replace("[access]\n", f"[access]\n{tls}"))
    with start_service(read_config(path), make_context()) as running:
        made = Site(running, uri, root, folder)
        until(lambda: running.instance.leads, "it leads")
        yield made


def test_a_java_client_requests_verifies_and_purges(site: Site) -> None:
    """By classes generated from the proto; a deadline is kept, and nothing is done without a token."""
    said = []
    with start_client(f"127.0.0.1:{site.running.grpc_port}", site.folder / "ca.crt", TOKEN, [3, 4]) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for line in client.stdout:
            said.append(line.strip())
            if line.startswith(("request", "verify")) and len(said) < 5:
                assert site.has_record(3)
                site.look()
                client.stdin.write("go\n")
                client.stdin.flush()
        assert client.stderr is not None
        assert client.wait(60) == 0, client.stderr.read()
    steps = [line.partition(" | ")[0] for line in said]
    assert steps == [
        "leads true",
        "without a token UNAUTHENTICATED",
        "request 0 3:REQUESTED 4:REQUESTED",
        "verify 0 3:VERIFIEDSAFE 4:VERIFIEDSAFE",
        "verify 0 3:PURGEABLESAFE 4:PURGEABLESAFE",
        "purge 0 3:PURGED 4:PURGED",
        "status 0 3:PURGED 4:PURGED",
        "too late true",
    ], said
    assert (site.has_record(3), site.has_record(4), site.has_record(5)) == (False, False, True)
    journals = list((site.running.instance.config.data / "deletes").iterdir())
    assert journals
    assert all(TOKEN not in path.read_text(errors="replace") for path in journals if path.is_file())


def test_curl_is_answered_over_tls(site: Site) -> None:
    """As docs/operations/service.md says; the certificate is looked at."""
    url = f"https://127.0.0.1:{site.running.http_port}/v1/get-status"
    line = ["curl", "--silent", "--show-error", "--noproxy", "*", "--cacert", str(site.folder / "ca.crt"), url]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["leads"] is True
    late = [*line[:-1], "--header", "Request-Timeout: 0.1", url.replace("get-status", "explain-ledger?ledger_id=7")]
    answer = json.loads(subprocess.run(late, capture_output=True, check=True, env=environment(), timeout=60).stdout)
    assert answer["code"] == "DEADLINE_EXCEEDED"
    gone = [*line[:-1], "--max-time", "0.3", late[-1]]
    assert subprocess.run(gone, capture_output=True, check=False, env=environment(), timeout=60).returncode != 0
    requests = site.running.instance.config.data / "requests"
    until(lambda: not list(requests.iterdir()), "its command was ended")
    without = subprocess.run([*line[:5], url], capture_output=True, check=False, timeout=60)
    assert without.returncode != 0, "nobody vouches for it"


def test_a_service_that_nobody_vouches_for_is_not_told_the_token(site: Site) -> None:
    """Neither one without encryption, nor one of another authority."""
    certificates.authority(site.folder, "stranger")
    method = next(method for method in METHODS if method.name == "GetStatus")
    with pytest.raises(ApiError):
        list(
            ask_service(
                f"127.0.0.1:{site.running.grpc_port}",
                method,
                method.request(),
                token=TOKEN,
                ca=site.folder / "stranger.crt",
                deadline_s=10,
            )
        )
    with grpc.insecure_channel(f"127.0.0.1:{site.running.grpc_port}") as channel:
        call: Callable[..., object] = channel.unary_unary("/bkmeta.service.v1.Bkmeta/GetStatus")
        with pytest.raises(grpc.RpcError):
            call(b"", timeout=10)


def test_records_are_captured_before_a_question_comes(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """By the program itself, as `cache.background` asks; a question is answered from that capture, and makes none."""
    root = f"/{tmp_path.name}/ledgers"
    uri = fill_zookeeper(zookeeper_server, root, LEDGERS)
    config = read_config(write_config(tmp_path, uri, "one", tmp_path / "data", background=True, session="30s"))
    with start_service(config, make_context()) as running:
        captures = config.data / "impact"
        until(lambda: find_newest(uri, captures) is not None, "a capture")
        captured = find_newest(uri, captures)
        method = next(method for method in METHODS if method.name == "CheckImpact")
        asked = ask_service(
            f"127.0.0.1:{running.grpc_port}", method, pb.ImpactRequest(bookies=[BOOKIES[0]]), token=TOKEN, deadline_s=60
        )
        [answer] = asked
        assert answer.result["counts"]["ledgers"] == len(LEDGERS), answer
        assert find_newest(uri, captures) == captured


def test_the_policy_of_the_cluster_holds_for_requests(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A delete of a ledger that no archive has: unsafe, though the service's own configuration asks for no mark."""
    change = ("delete", "policy", "set", "--metadata", site.uri, "--journal", site.folder / "policy", "--archived")

    def ask(name: str, request: Any) -> Any:
        method = next(method for method in METHODS if method.name == name)
        address, ca = f"127.0.0.1:{site.running.grpc_port}", site.folder / "ca.crt"
        [answer] = ask_service(address, method, request, token=TOKEN, ca=ca, deadline_s=60)
        return answer

    named = [pb.LedgerId(ledger_id=7)]
    ask("RequestDeletes", pb.DeletesRequest(ledgers=named, soak="0s"))
    verdicts = []
    for archived in ("required", "ignored"):
        assert run(capsys, *change, archived).code == 0
        site.look()
        [ledger] = ask("VerifyDeletes", pb.VerifyRequest(ledgers=named)).ledgers
        verdicts.append((ledger.verdict, any("archive" in reason.lower() for reason in ledger.reasons)))
    assert verdicts == [("UNSAFE", True), ("SAFE", False)]
