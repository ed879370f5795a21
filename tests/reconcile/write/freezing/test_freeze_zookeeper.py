"""`freeze` and `thaw` as they are typed, on a real ZooKeeper, seen by others who connect to it."""

import itertools
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl, make_digest_acl_credential

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from reconcile.write.freezing import freeze_state
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.inventories import write_inventory
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

AUTH = ("bkmeta", "a password: of mine")
TAKING_READ = ("00", "000")
TAKING_CREATE = ("", "/idgen", "/underreplication/locks")
IDS = (0, 7, 12_345, 2_147_483_647, 5_000_000_000)
_ROOTS = itertools.count()


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our identity in the environment, and a working folder for journals."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", ":".join(AUTH))
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nobody(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client of another program, without credentials, as bookies are by default."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def ours(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client with our identity."""
    client = KazooClient(zookeeper_server.hosts, auth_data=[("digest", ":".join(AUTH))])
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root(nobody: KazooClient) -> str:
    """A cluster's nodes below a root of its own."""
    root = f"/frozen-{next(_ROOTS)}"
    cluster(nobody, root)
    return root


def cluster(client: KazooClient, root: str, layout: Layout = Layout.HIERARCHICAL) -> None:
    """Make what a cluster that has never replicated anything has."""
    nodes = {
        "/LAYOUT": layout_bytes(layout),
        "/INSTANCEID": b"7d3e",
        "/available/readonly": b"",
        "/cookies/b1": b"",
        "/idgen": b"",
    }
    for key, value in (nodes | {ledger_key(layout, LedgerId(0, n)): b"record" for n in IDS}).items():
        client.create(root + key, value, makepath=True)


def uri(server: ZooKeeperServer, root: str) -> str:
    """Return the address as an operator writes it."""
    return f"zk+hierarchical://{server.hosts}{root}"


def rights(client: KazooClient, root: str) -> dict[str, str]:
    """Return the rights of every node below a root."""
    found: dict[str, str] = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        entries, _ = client.get_acls(path)
        found[path.removeprefix(root) or "/"] = ",".join(sorted(f"{e.id.scheme}:{e.id.id}:{e.perms}" for e in entries))
        waiting += [f"{path}/{name}" for name in client.get_children(path)]
    return found


def test_nothing_is_changed_until_the_hash_is_named(
    zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exact changes and their hash are printed, exit 5; another hash changes nothing either."""
    before = rights(nobody, root)
    shown = run(capsys, "freeze", "--metadata", uri(zookeeper_server, root))
    assert shown.code == 5
    assert shown.out.startswith("nothing was changed")
    principal = "digest:" + make_digest_acl_credential(*AUTH)
    assert f"/00: world:anyone:cdrwa -> world:anyone:a,{principal}:cdrwa" in shown.out
    assert f"/underreplication/locks: made, with world:anyone:dra,{principal}:cdrwa" in shown.out
    assert "--confirm " in shown.out.splitlines()[-1]
    wrong = run(capsys, "freeze", "--metadata", uri(zookeeper_server, root), "--confirm", "0" * 64)
    assert (wrong.code, wrong.out.split(":")[0]) == (5, "nothing was changed")
    assert rights(nobody, root) == before
    assert not list(Path().iterdir())
    assert AUTH[1] not in shown.out


def test_frozen_for_deletes_only_as_others_see_it_and_thawed(
    zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No client may list; ids and records are made and deleted as before; then all rights are as before."""
    before = rights(nobody, root)
    freeze = ("freeze", "--metadata", uri(zookeeper_server, root), "--deletes-only")
    offered = run(capsys, *freeze)
    assert "--deletes-only" in offered.out.splitlines()[-1]
    assert any("clients go on" in line for line in offered.out.splitlines())
    done = run(capsys, *freeze, "--confirm", offered.out.split()[-1], "--json")
    assert (done.code, done.result["state"], done.result["deletes_only"]) == (0, "deletes-only", True), done.out
    assert done.result["verdict"].startswith("frozen for deletes only")
    [trial] = done.result["trials"]
    assert (len(trial["refused"]), trial["allowed"], trial["failed"]) == (4, [], [])
    for name in TAKING_READ:
        with pytest.raises(NoAuthError):
            nobody.get_children(f"{root}/{name}")
    number = nobody.create(f"{root}/idgen/ID-", b"", ephemeral=True, sequence=True)
    nobody.delete(number)
    # As BookKeeper's client makes a record in a folder that is there, and in one that is not.
    for keys in (["/00/0000/L0008"], ["/00/0009", "/00/0009/L0001"], ["/01", "/01/0000", "/01/0000/L0001"]):
        for key in keys:
            nobody.create(root + key, b"record")
        for key in reversed(keys):
            if key == "/01":
                # It tries to delete a folder that becomes empty, before 4.10 unseen, and takes a refusal for the end.
                with pytest.raises(NoAuthError):
                    nobody.delete(root + key)
            else:
                nobody.delete(root + key)
    assert any("clients still create" in line for line in run(capsys, *freeze).out.splitlines())
    seen = run(capsys, "preflight", "--metadata", uri(zookeeper_server, root), "--json").result
    assert seen["freeze"]["state"] == "deletes-only"
    # What a full freeze takes besides waits to be confirmed.
    more = run(capsys, *freeze[:-1], "--json").result
    assert more["counts"]["changes"] > 0
    assert run(capsys, *freeze[:-1], "--confirm", more["hash"]).code == 0
    # It holds more than is asked for: clients do not go on.
    held = run(capsys, *freeze)
    assert (held.code, "clients still create" in held.out) == (0, False)
    thaw = ("thaw", "--metadata", uri(zookeeper_server, root), "--accept-unseen", "1")
    waiting = run(capsys, *thaw, "--json").result
    assert run(capsys, *thaw, "--confirm", waiting["hash"]).code == 0
    after = rights(nobody, root)
    assert {path: after[path] for path in before} == before


def test_who_may_delete_is_known_where_the_folder_or_the_root_is_gone(
    zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str
) -> None:
    """A real server refuses by the root's rights before it looks for the folder."""
    attempt = f"delete below {root}"
    with closing(ZooKeeperStore(zookeeper_server.hosts)) as store:

        def prove() -> freeze_state.RefusalProof:
            return freeze_state.prove_refusals(store, store, root, Layout.HIERARCHICAL, deletes_only=True)

        assert attempt in prove().allowed
        nobody.delete(f"{root}/00", recursive=True)
        assert attempt in prove().allowed
        nobody.set_acls(root, [make_acl("world", "anyone", read=True, create=True, admin=True)])
        assert attempt in prove().refused
        nobody.set_acls(root, [make_acl("world", "anyone", all=True)])
        nobody.delete(root, recursive=True)
        gone = prove()
        assert (attempt in gone.allowed, f"{attempt}: it is absent" in gone.failed) == (False, True)


def test_frozen_as_others_see_it_and_thawed_as_it_was(
    zookeeper_server: ZooKeeperServer,
    nobody: KazooClient,
    ours: KazooClient,
    root: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Listing and creating are refused to anybody; records can be read and a restore goes on; then all is as before."""
    before = rights(nobody, root)
    address = uri(zookeeper_server, root)
    offered = run(capsys, "freeze", "--metadata", address, "--json").result
    done = run(capsys, "freeze", "--metadata", address, "--confirm", offered["hash"], "--json")
    assert (done.code, done.result["state"], done.result["replication_disabled"]) == (0, "frozen", True)
    [trial] = done.result["trials"]
    assert (len(trial["refused"]), trial["allowed"], trial["failed"]) == (5, [], [])
    assert any("Exception when iterating over the metadata" in line for line in done.result["coverage"]["not_seen"])

    for name in TAKING_READ:
        with pytest.raises(NoAuthError):
            nobody.get_children(f"{root}/{name}")
    for name in TAKING_CREATE:
        with pytest.raises(NoAuthError):
            nobody.create(f"{root}{name}/x", b"")
    assert nobody.get(root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, 7)))[0] == b"record"
    assert nobody.exists(root) is not None
    assert nobody.create(f"{root}/available/b9", b"", ephemeral=True)
    nobody.delete(f"{root}/available/b9")
    assert nobody.exists(f"{root}/idgen-long") is None
    assert not [path for path in rights(ours, root) if "bkmeta" in path]

    again = run(capsys, "freeze", "--metadata", address)
    assert (again.code, again.out.split(":")[0]) == (0, "frozen")

    store = ZooKeeperStore(zookeeper_server.hosts, auth=AUTH)
    wanted = [Write(root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, n)), b"new") for n in (1, 99_999, 6_000_000_000)]
    store.write(wanted)
    assert freeze_state.read_freeze_state(store, root).frozen
    store.raise_counter(f"{root}/idgen", 100)
    store.close()

    held = write_inventory(tmp_path / "inv", "b1", (*IDS, 1, 99_999, 6_000_000_000), instance="7d3e")
    offered = run(capsys, "thaw", "--metadata", address, "--inventory", held, "--json").result
    assert offered["counts"] == {
        "changes": 5,
        "listed": 8,
        "held": 8,
        "absent": 0,
        "unseen": 0,
        "guarded": 0,
        "left_out": 0,
    }
    done = run(capsys, "thaw", "--metadata", address, "--inventory", held, "--confirm", offered["hash"][:8], "--json")
    assert (done.code, done.result["state"]) == (0, "thawed")
    [start] = done.result["bookies"]
    other = "the store has another cookie of it than its folders hold"
    assert (start["bookie"], start["may_start"], start["reason"]) == ("b1", False, other)
    after = rights(nobody, root)
    assert before.items() <= after.items()
    assert after["/underreplication/disable"] == after["/underreplication/locks"] == before["/"]
    assert sorted(nobody.get_children(f"{root}/00")) == ["0000", "0001", "0009"]
    again = run(capsys, "thaw", "--metadata", address)
    assert again.out.startswith("nothing to do")
    assert "not checked: which bookies may start" in again.out


def test_a_root_that_is_gone_is_made_frozen(
    zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is there, closed, at once: bookies can register, and list nothing; a thaw waits for the end of the restore."""
    gone = f"{root}-gone"
    address = uri(zookeeper_server, gone)
    offered = run(capsys, "freeze", "--metadata", address, "--json").result
    assert nobody.exists(gone) is None
    done = run(capsys, "freeze", "--metadata", address, "--confirm", offered["hash"], "--json")
    assert (done.code, done.result["state"], done.result["replication_disabled"]) == (0, "frozen", True)
    made = {nobody.exists(f"{gone}{name}").czxid for name in ("", "/available/readonly", "/underreplication/disable")}
    assert len(made) == 1
    for name in TAKING_READ:
        with pytest.raises(NoAuthError):
            nobody.get_children(f"{gone}/{name}")
    assert nobody.create(f"{gone}/available/b9", b"", ephemeral=True)
    nobody.delete(f"{gone}/available/b9")
    waits = run(capsys, "thaw", "--metadata", address)
    assert (waits.code, "the restore has not ended" in waits.err) == (5, True)


def test_every_principal_loses_the_rights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secured bookie's own entry is reduced too; that nobody could be tried as it is said, with exit 4."""
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.authProvider.1={provider}")
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    try:
        client = KazooClient(server.hosts, auth_data=[("digest", ":".join(AUTH))])
        client.start()
        cluster(client, "/ledgers")
        for name in ("", "/00", "/idgen"):
            secured = [make_acl("sasl", "bk", all=True), make_acl("world", "anyone", read=True, admin=True)]
            client.set_acls(f"/ledgers{name}", secured)
        before = rights(client, "/ledgers")
        address = uri(server, "/ledgers")
        # Nobody but the bookies has CREATE on the root, so what is missing there cannot be made.
        refused = run(capsys, "freeze", "--metadata", address)
        assert refused.code == 5
        assert "CREATE" in refused.err
        principal = make_digest_acl_credential(*AUTH)
        client.set_acls("/ledgers", [*client.get_acls("/ledgers")[0], make_acl("digest", principal, all=True)])
        offered = run(capsys, "freeze", "--metadata", address, "--json").result
        assert any("sasl:bk" in note for note in offered["notes"])
        done = run(capsys, "freeze", "--metadata", address, "--confirm", offered["hash"], "--json")
        assert (done.code, done.result["coverage"]["not_tried_as"]) == (4, ["sasl:bk"])
        closed = rights(client, "/ledgers")
        for name in ("/00", "/idgen"):
            assert closed[name] == f"digest:{principal}:31,sasl:bk:16,world:anyone:16"
        assert closed["/"] == f"digest:{principal}:31,sasl:bk:17,world:anyone:17"
        thaw = ("thaw", "--metadata", address, "--accept-unseen", "1")
        offered = run(capsys, *thaw, "--json").result
        assert run(capsys, *thaw, "--confirm", offered["hash"]).code == 0
        after = rights(client, "/ledgers")
        assert {name: after[name] for name in before if name != "/"} == {n: r for n, r in before.items() if n != "/"}
        client.stop()
        client.close()
    finally:
        server.kill()


def test_a_thaw_that_would_lose_data_is_refused(
    zookeeper_server: ZooKeeperServer,
    nobody: KazooClient,
    ours: KazooClient,
    root: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """No ledger listed, some of the inventories' missing, no LAYOUT or INSTANCEID: exit 5, still frozen."""
    address = uri(zookeeper_server, root)
    offered = run(capsys, "freeze", "--metadata", address, "--json").result
    run(capsys, "freeze", "--metadata", address, "--confirm", offered["hash"])
    held = write_inventory(tmp_path / "inv", "b1", (*IDS, 4_711, 815), instance="7d3e")
    thaw = ("thaw", "--metadata", address, "--inventory", held)
    missing = run(capsys, *thaw)
    assert missing.code == 5
    assert "2 of the 7" in missing.err
    assert "815, 4711" in missing.err
    following = run(capsys, *thaw, "--json").result["next"]
    assert "--accept-absent 2" in following
    assert missing.err.rstrip().endswith(following)
    assert run(capsys, *thaw, "--accept-absent", "1").code == 5
    whole = write_inventory(tmp_path / "whole", "b1", IDS, instance="7d3e")
    needless = run(capsys, "thaw", "--metadata", address, "--inventory", whole, "--accept-absent", "1")
    assert (needless.code, "leave out --accept-absent" in needless.err) == (5, True)
    accepted = run(capsys, *thaw, "--accept-absent", "2", "--json").result
    assert accepted["counts"]["absent"] == 2

    foreign = write_inventory(tmp_path / "foreign", "b1", IDS, instance="9f00")
    other = run(capsys, "thaw", "--metadata", address, "--inventory", foreign)
    assert (other.code, "7d3e" in other.err, "9f00" in other.err) == (5, True, True)

    for name in ("INSTANCEID", "LAYOUT"):
        value, _ = nobody.get(f"{root}/{name}")
        ours.delete(f"{root}/{name}")
        gone = run(capsys, *thaw, "--accept-absent", "2")
        assert gone.code == 5
        assert f"{root}/{name}" in gone.err
        ours.create(f"{root}/{name}", value)

    for top in TAKING_READ:
        for name in ours.get_children(f"{root}/{top}"):
            ours.delete(f"{root}/{top}/{name}", recursive=True)
    for arguments in (("thaw", "--metadata", address), (*thaw, "--accept-absent", "7")):
        empty = run(capsys, *arguments)
        assert empty.code == 5
        assert "lists no ledger" in empty.err or "lists 0 ledgers" in empty.err
    none = write_inventory(tmp_path / "none", "b1", (), instance="7d3e")
    assert "hash" in run(capsys, "thaw", "--metadata", address, "--inventory", none, "--json").result
    with pytest.raises(NoAuthError):
        nobody.get_children(f"{root}/00")


@pytest.mark.parametrize("bookies", [0, 2])
def test_a_thaw_without_any_inventory_demands_that_somebody_accepts_it(
    zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str, capsys: pytest.CaptureFixture[str], bookies: int
) -> None:
    """Ledgers that only bookies know have no record: nobody looked, so nothing is thawed until that is said.

    The number is that of all bookies that run or have a cookie. Where there are none it has to be given, too.
    """
    address = uri(zookeeper_server, root)
    if bookies:
        nobody.create(f"{root}/available/b2", b"")
    else:
        nobody.delete(f"{root}/cookies/b1")
    offered = run(capsys, "freeze", "--metadata", address, "--json").result
    assert run(capsys, "freeze", "--metadata", address, "--confirm", offered["hash"]).code == 0
    thaw = ("thaw", "--metadata", address)
    refused = run(capsys, *thaw)
    assert (refused.code, f"--accept-unseen {bookies}" in refused.err) == (5, True)
    assert (f"has {bookies} bookies" in refused.err, "b1, b2" in refused.err) == (True, bool(bookies))
    assert run(capsys, *thaw, "--accept-unseen", bookies + 1).code == 5
    with pytest.raises(NoAuthError):
        nobody.get_children(f"{root}/00")
    # What is stated to be lost has nothing to delete, unless it runs.
    without = run(capsys, *thaw, "--lost", "b1", "--lost", "b2")
    assert f"has {max(0, bookies - 1)} bookie" in without.err
    waiting = run(capsys, *thaw, "--accept-unseen", bookies, "--json").result
    assert waiting["counts"]["unseen"] == bookies
    assert f"--accept-unseen {bookies}" in waiting["next"]
    assert run(capsys, *thaw, "--accept-unseen", bookies, "--confirm", waiting["hash"]).code == 0
    assert nobody.get_children(f"{root}/00") is not None


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("etcd://127.0.0.1:2379/ledgers", 5, "keep the bookies stopped until apply has ended"),
        ("metadata-store:etcd:http://127.0.0.1:2379", 5, "keep the bookies stopped"),
        ("nonsense", 2, "not a store URI"),
    ],
)
def test_stores_that_cannot_be_frozen(address: str, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A store without such rights is refused with what to do instead, before anything is connected to."""
    for command in ("freeze", "thaw"):
        refused = run(capsys, command, "--metadata", address)
        assert refused.code == code
        assert words in refused.err


@pytest.mark.parametrize("option", ["--accept-absent", "--accept-left-out"])
def test_what_may_go_of_inventories_needs_inventories(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that nothing is compared with is refused, before anything is connected to."""
    thaw = ("thaw", "--metadata", "zk+hierarchical://127.0.0.1:1/ledgers", option, "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BKMETA_ZK_AUTH", "tool:secret")
        refused = run(capsys, *thaw)
    assert (refused.code, f"{option}: says how many ledgers of the inventories may be deleted" in refused.err) == (
        2,
        True,
    )


def test_usage(
    zookeeper_server: ZooKeeperServer,
    nobody: KazooClient,
    root: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No identity, the bookies' own one, no root, no journal to thaw by: named, with the remedy."""
    address = uri(zookeeper_server, root)
    no_journal = run(capsys, "thaw", "--metadata", address)
    assert (no_journal.code, "--journal" in no_journal.err) == (2, True)
    no_root = run(capsys, "freeze", "--metadata", address + "-absent")
    assert (no_root.code, "does not exist" in no_root.out) == (5, True)
    assert nobody.exists(root + "-absent") is None
    monkeypatch.setenv("BKMETA_ZK_BOOKIE_AUTH", ":".join(AUTH))
    assert run(capsys, "freeze", "--metadata", address).code == 2
    monkeypatch.delenv("BKMETA_ZK_AUTH")
    missing = run(capsys, "thaw", "--metadata", address)
    assert (missing.code, "BKMETA_ZK_AUTH" in missing.err) == (2, True)


def test_a_server_that_ignores_rights_is_not_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With skipACL the attempts pass: exit 3, and nothing that was tried stays behind."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dzookeeper.skipACL=yes")
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    try:
        client = KazooClient(server.hosts)
        client.start()
        cluster(client, "/ledgers")
        offered = run(capsys, "freeze", "--metadata", uri(server, "/ledgers"), "--json").result
        done = run(capsys, "freeze", "--metadata", uri(server, "/ledgers"), "--confirm", offered["hash"], "--json")
        assert done.code == 3
        assert done.result["verdict"].startswith("NOT FROZEN")
        assert "skipACL" in done.result["verdict"]
        assert not [path for path in rights(client, "/ledgers") if "bkmeta" in path]
        client.stop()
        client.close()
    finally:
        server.kill()


def test_a_bookie_that_is_the_super_user_is_not_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried as the bookies' own identity, a super user passes: exit 3. A server that does not answer: exit 4."""
    digest = make_digest_acl_credential("super", "duper")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest}")
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    try:
        client = KazooClient(server.hosts)
        client.start()
        cluster(client, "/ledgers")
        client.stop()
        client.close()
        absent = ZooKeeperServer(tmp_path / "absent")
        both = f"zk+hierarchical://{server.hosts};{absent.hosts}/ledgers"
        journal = ("--journal", "journal")
        offered = run(capsys, "freeze", "--metadata", both, *journal, "--json").result
        done = run(capsys, "freeze", "--metadata", both, *journal, "--confirm", offered["hash"], "--json")
        assert (done.code, done.result["coverage"]["servers_silent"]) == (4, [absent.hosts])
        monkeypatch.setenv("BKMETA_ZK_BOOKIE_AUTH", "super:duper")
        done = run(capsys, "freeze", "--metadata", uri(server, "/ledgers"), *journal, "--json")
        assert done.code == 3
        passed = {trial["as"]: bool(trial["allowed"]) for trial in done.result["trials"]}
        assert passed == {"world:anyone": False, f"digest:{digest}": True}
    finally:
        server.kill()


def test_at_a_terminal_the_hash_is_typed(zookeeper_server: ZooKeeperServer, nobody: KazooClient, root: str) -> None:
    """Without --confirm a terminal is asked; what is typed decides."""
    code = "from reconcile.cli.main import main; main()"
    command = [sys.executable, "-c", code, "freeze", "--metadata", uri(zookeeper_server, root), "--json"]
    offered = json.loads(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout)
    for typed, expected in (("00000000", 5), (offered["hash"][:8], 0)):
        terminal, theirs = pty.openpty()
        with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            os.write(terminal, typed.encode() + b"\n")
            out, err = process.communicate(timeout=60)
            os.close(terminal)
        assert process.returncode == expected, err
        assert offered["hash"].encode() in err
        assert json.loads(out)["exit_code"] == expected
    with pytest.raises(NoAuthError):
        nobody.get_children(f"{root}/00")
