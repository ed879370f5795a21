"""Commands whose datasets stand in an object store: the same plan as from disks, whatever becomes of some requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.plan.plan_reader import open_whole
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support import command
from tests.support.cases import case_dir, operator, truth
from tests.support.object_store import SECRET, Fault, FaultyProxy, ObjectStore, every, started_store
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CASE: Final = "c03"
FAULTS: Final = (
    Fault.TORN_UPLOAD,
    Fault.LOST_ANSWER,
    Fault.CUT_DOWNLOAD,
    Fault.SLOW,
    Fault.CUT_UPLOAD,
    Fault.THROTTLED,
)
RARE: Final = 14
"""Each so-many-th request meets one: a throttled client waits a second or more."""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """A server with one bucket."""
    with started_store() as started:
        yield started


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of candidate passwords."""
    file = tmp_path_factory.mktemp("secrets") / "passwords"
    file.write_text("\n".join(operator(CASE)["passwords"]) + "\n")
    file.chmod(0o600)
    return file


def bkmeta(env: dict[str, str], *words: object) -> command.Done:
    """Run a command with these variables."""
    return command.process(*words, env=command.environment(**env), patience_s=600)


def collect_and_recover(env: dict[str, str], top: str, secrets: Path) -> None:
    """Collect the case's disks and make a plan of them, all in one place."""
    disks = [
        f"--disk={bookie['id']}={case_dir(CASE) / folder}"
        for bookie in operator(CASE)["bookies"]
        for folder in [*bookie["ledgers"], *bookie["journals"]]
    ]
    words = ("--layout", "hierarchical", "--master", "local[2]", "--passwords", secrets)
    done = bkmeta(env, "recover", *disks, *words, "--out", f"{top}/plan")
    assert done.code == 0, done.err


def test_a_plan_in_a_store_is_the_one_on_a_disk(
    store: ObjectStore, secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torn uploads, lost answers, cut and slow reads and throttling on the way: the same rows; no secret is stored."""
    with FaultyProxy(store, every(RARE, *FAULTS)) as proxy:
        collect_and_recover(proxy.environment, f"{store.uri}/run", secrets)
    assert set(proxy.happened) == set(FAULTS)
    collect_and_recover({}, str(tmp_path), secrets)
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    plan, seen = open_whole(f"{store.uri}/run/plan")
    here, _ = open_whole(str(tmp_path / "plan"))
    assert not seen.problems
    for table in ("actions", "reconstruction", "sides"):
        assert plan.read(table).equals(here.read(table)), table
    rows = {row["ledger"]: row["last_entry"] for row in plan.read("reconstruction").to_pylist()}
    assert rows == {row["ledger"]: row["last"] for row in truth(CASE)["ledgers"] if row["entries"]}
    keys = [key for key in store.list_keys() if not key.endswith("/")]
    assert len([key for key in keys if "/plan/inventories/" in key and key.endswith("/manifest.json")]) == len(
        operator(CASE)["bookies"]
    )
    assert not [key for key in keys if "unfinished" in key or "spill" in key]
    assert not [key for key in keys if SECRET.encode() in store.read(key)]

    shown = bkmeta(store.environment(), "plan", "show", f"{store.uri}/run/plan")
    assert (shown.code, SECRET in shown.out + shown.err) == (0, False)
    cut = bkmeta(
        store.environment(),
        "plan",
        "split",
        f"{store.uri}/run/plan",
        "--waves",
        "canary,rest",
        "--out",
        f"{store.uri}/cut",
    )
    assert cut.code == 0, cut.err
    ledger = min(rows)
    edited = bkmeta(
        store.environment(), "plan", "edit", f"{store.uri}/run/plan", "--drop", ledger, "--out", f"{store.uri}/edited"
    )
    assert edited.code == 0, edited.err
    dropped = {row["ledger"] for row in plan.read("actions").to_pylist() if row["ledger"] is not None}
    left = open_dataset(f"{store.uri}/edited", "plan").read("actions").to_pylist()
    assert dropped - {row["ledger"] for row in left} == {ledger}
    told = bkmeta(store.environment(), "explain", ledger, "--plan", f"{store.uri}/run/plan")
    assert told.code == 0, told.err
    refused = bkmeta(
        store.environment(), "apply", f"{store.uri}/cut", "--metadata", "zk+hierarchical://127.0.0.1:1/ledgers"
    )
    assert (refused.code, "journal" in refused.err) == (2, True)


def test_a_store_that_does_not_let_in_is_said_in_one_line(store: ObjectStore) -> None:
    """A bucket that is not there, or nobody who listens: the place, what is wrong, and what to do."""
    nobody = {**store.environment(), "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    for env, uri in ((store.environment(), "s3://no-such-bucket/inv"), (nobody, f"{store.uri}/inv")):
        bookie = operator(CASE)["bookies"][0]
        folders = [f"--ledger-dir={case_dir(CASE) / folder}" for folder in bookie["ledgers"]]
        folders += [f"--journal-dir={case_dir(CASE) / folder}" for folder in bookie["journals"]]
        done = bkmeta(env, "collect", *folders, "--out", uri)
        assert done.code in (1, 2), done.err
        assert uri in done.err
        assert "Traceback" not in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_a_capture_in_a_store_is_a_snapshot(
    store: ObjectStore,
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What `capture` wrote there, other commands take from there: `recover --snapshot` proposes every record of it."""
    files = case_dir(CASE) / "zookeeper"
    done = bkmeta(store.environment(), "capture", "--metadata", f"zkfiles://{files}", "--out", f"{store.uri}/capture")
    assert done.code == 0, done.err
    assert f"--snapshot {store.uri}/capture" in done.out
    bookie = operator(CASE)["bookies"][0]["id"]
    question = ("check-impact", "--metadata", f"{store.uri}/capture", "--bookies", bookie, "--json")
    of_store = bkmeta(store.environment(), *question, "--out", f"{store.uri}/impact")
    assert of_store.result["counts"]["ledgers"] > 0
    assert [key for key in store.list_keys("impact/") if key.endswith("/manifest.json")]
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    ledgers = open_dataset(f"{store.uri}/capture", "catalog").rows("ledgers")
    words = ("--layout", "hierarchical", "--master", "local[1]", "--snapshot", f"{store.uri}/capture")
    done = bkmeta(store.environment(), "recover", *words, "--out", f"{store.uri}/of-a-snapshot", "--json")
    assert done.code in (0, 4), done.err
    assert done.result["counts"]["restored"] == ledgers > 0

    capture, plan = f"{store.uri}/capture", f"{store.uri}/of-a-snapshot"
    against = ("scrutinize", "--metadata", capture, "--against", capture, "--out", f"{store.uri}/against")
    assert command.run(capsys, *against).code == 0
    given = command.run(capsys, "plan", "edit", plan, "--acl-of", capture, "--out", f"{store.uri}/as-it-was")
    assert given.code == 0, given.err
    listed = command.run(capsys, "plan", "ledgers", f"{store.uri}/as-it-was", "--json")
    assert (listed.code, listed.result["counts"]["ledgers"]) == (0, ledgers), listed
    assert command.run(capsys, "plan", "diff", plan, plan).code == 0

    metadata = ("--metadata", f"zk+hierarchical://{zookeeper_server.hosts}/{tmp_path.name}")
    confirmed = open_dataset(plan, "plan").manifest["hash"]
    journal = ("--journal", tmp_path / "journal")
    unseen = ("--accept-unseen", len(operator(CASE)["bookies"]))
    applied = command.run(capsys, "apply", plan, *metadata, *journal, *unseen, "--confirm", confirmed, "--json")
    assert applied.code == 0, applied
    assert command.run(capsys, "capture", *metadata, "--out", f"{store.uri}/applied").code == 0
    rows = [open_dataset(place, "catalog").read("ledgers") for place in (capture, f"{store.uri}/applied")]
    before, after = ({row["ledger"]: row["raw"] for row in table.to_pylist()} for table in rows)
    assert before == after

    ledger = min(after)
    with open_store(metadata[1], writable=True) as opened:
        key = opened.root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))
        node = opened.store.get(key)
        assert node is not None
        opened.store.write([Write(key, None, node.version)])
    out = ("--out", f"{store.uri}/undelete", "--json")
    back = command.run(capsys, "undelete", ledger, *metadata, "--history", f"{store.uri}/applied", *out)
    assert (back.code, back.result["counts"]["restored"]) == (0, 1), back
    [action] = open_dataset(f"{store.uri}/undelete", "plan").read("actions", buckets=range(4096)).to_pylist()
    assert (action["ledger"], action["value"]) == (ledger, after[ledger])
