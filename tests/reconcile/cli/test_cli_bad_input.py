"""Input that cannot be used: one clear message with place and remedy, the right exit code, and nothing lost."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconcile.jobs.diagnose import inspect as inspect_job
from recovery.dataset import MANIFEST, DatasetWriter, open_dataset
from tests.simulation.bookie_dir import BOOKIE, BookieDir, make_bookie, record, write_journal, write_mark
from tests.support.command import PATIENCE_S, PROGRAM, Done, environment, process, run, started
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan
from tests.support.processes import find_children, is_running
from tests.support.waiting import until

pytestmark = pytest.mark.long

JOURNAL = 0x18BCFE56801
OTHER = "10.0.0.2:3181"
OTHER_CLUSTER = "99999999-2222-3333-4444-555555555555"
STORE = "zk+hierarchical://127.0.0.1:1/ledgers"
"""Where nothing listens."""


@pytest.fixture
def bookie(tmp_path: Path) -> BookieDir:
    """A small bookie's folders, journal and mark included."""
    made = make_bookie(tmp_path / "bookie", {5: list(range(20)), 6: [1, 4, 7], 7: [0, 1]})
    write_journal(made, JOURNAL, [record(5, 19)])
    write_mark(made, JOURNAL, 512)
    return made


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory."""
    return write_inventory(tmp_path / "inventory", BOOKIE, range(40), instance="one")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of some ledgers."""
    ledgers = [Ledger(n, [(0, ("b1", "b2", "b3"))], last=n, length=n + 1) for n in range(1, 20)]
    return Path(write_plan(tmp_path / "plan", ledgers).path)


def folders(made: BookieDir) -> list[str]:
    """The options that name a bookie's folders."""
    named = [("--ledger-dir", made.ledger_dirs), ("--journal-dir", made.journal_dirs), ("--index-dir", made.index_dirs)]
    return [word for option, paths in named for path in paths for word in (option, str(path))]


class Refusal:
    """Runs command lines that must be refused."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, arguments: Sequence[object], *words: object, code: int = 2) -> None:
        """See that it ends with the code, and that its one message has the words, for people and for programs."""
        done = run(self._capsys, *arguments)
        assert (done.code, done.out) == (code, "")
        self._demand(done.err, words)
        done = run(self._capsys, *arguments, "--json")
        assert (done.code, done.err, done.result["exit_code"]) == (code, "", code)
        self._demand(done.result["verdict"], words)

    def _demand(self, message: str, words: Sequence[object]) -> None:
        assert "Traceback" not in message
        assert [word for word in words if str(word) not in message] == []


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Demands a refusal."""
    return Refusal(capsys)


# Folders and ids


def test_a_missing_folder(tmp_path: Path, refused: Refusal) -> None:
    """It is named, and nothing is written: what was not mounted must not look like an empty bookie."""
    out = tmp_path / "inventory"
    refused(["collect", "--ledger-dir", tmp_path / "nowhere", "--out", out], tmp_path / "nowhere", "no such folder")
    assert not out.exists()


def test_a_place_in_a_store_where_a_folder_of_this_machine_belongs(
    bookie: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries, disks, journals and lists are of this machine: no folder named `s3:` is made; file:// is a folder."""
    monkeypatch.chdir(tmp_path)
    disk, away = f"{BOOKIE}={bookie.ledger_dirs[0]}", "s3://bucket/folder"
    refused = Refusal(capsys)
    refused(["export", 5, "--disk", disk, "--out", away], "--out", away, "this machine")
    refused(["export", 5, "--disk", f"{BOOKIE}={away}", "--out", "new"], "--disk", away, "this machine")
    refused(["export", 5, "--disk", disk, "--out", "new", "--passwords", away], "--passwords", away)
    refused(["apply", "plan", "--metadata", STORE, "--journal", away], "--journal", away)
    assert not [*tmp_path.glob("s3*"), *tmp_path.glob("new")]
    run(capsys, "export", 5, "--disk", disk, "--out", (tmp_path / "new").as_uri())
    assert [*(tmp_path / "new").glob("5*")]


def test_a_file_where_a_folder_belongs(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """Said by the option's name."""
    refused(["collect", "--ledger-dir", bookie.log(), "--out", tmp_path / "i"], "--ledger-dir", "is a file")


def test_folders_that_nothing_says_the_owner_of(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """Without a cookie the id must be given; with it the same folders are collected, as not complete."""
    for folder in bookie.all_dirs:
        (folder / "current" / "VERSION").unlink()
    command = ["collect", *folders(bookie), "--out", tmp_path / "i"]
    refused(command, bookie.ledger_dirs[0], "no VERSION", "name the bookie")
    done = process(*command, "--bookie-id", BOOKIE)
    assert (done.code, "NOT complete" in done.out) == (4, True)


def test_a_wrong_bookie_id(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """An id that is not the cookie's is refused with both."""
    refused(["collect", *folders(bookie), "--bookie-id", OTHER, "--out", tmp_path / "i"], OTHER, BOOKIE, "leave")


def test_folders_of_two_bookies(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """Both files that contradict each other are named."""
    other = make_bookie(tmp_path / "other", {8: [0]}, bookie=OTHER)
    command = ["collect", *folders(bookie), *folders(other), "--out", tmp_path / "i"]
    refused(command, bookie.ledger_dirs[0], other.ledger_dirs[0], BOOKIE, OTHER, "one bookie at a time")


def test_folders_of_two_clusters(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """A disk that came from another cluster under the same address is seen by the cluster's instance id."""
    other = make_bookie(tmp_path / "other", {8: [0]}, instance=OTHER_CLUSTER)
    command = ["collect", *folders(bookie), *folders(other), "--out", tmp_path / "i"]
    refused(command, "cluster instance", OTHER_CLUSTER, other.ledger_dirs[0])


def test_a_folder_that_is_named_twice_is_read_once(bookie: BookieDir, tmp_path: Path) -> None:
    """With and without current/, it is the same folder."""
    again = ["--ledger-dir", bookie.ledger_dirs[0] / "current"]
    done = process("collect", *folders(bookie), *again, "--out", tmp_path / "i", "--json")
    assert (done.code, done.result["counts"]["ledgers"]) == (0, 3)


def test_places_that_nothing_may_be_written_to(bookie: BookieDir, inventory: Path, refused: Refusal) -> None:
    """Below the bookie's folders, over a dataset, beside other files, where the system refuses, at a file."""
    collect = ["collect", *folders(bookie), "--out"]
    inside = bookie.ledger_dirs[0] / "current" / "inventory"
    refused([*collect, inside], inside, "inside the bookie's folder", "elsewhere")
    refused([*collect, inventory], inventory, "already holds a dataset", "another folder")
    refused([*collect, inventory.parent], "is not empty", "empty or a new folder")
    refused([*collect, "/proc/nowhere"], "/proc/nowhere", "cannot be written", "choose another folder")
    refused([*collect, bookie.log()], "--out", "is a file")
    open_dataset(inventory, "inventory").verify()
    assert not inside.exists()


def test_configurations_that_cannot_be_used(bookie: BookieDir, tmp_path: Path, refused: Refusal) -> None:
    """A missing file, one whose folders are not there, and options that contradict it."""
    conf = tmp_path / "bk_server.conf"
    out = ["--out", tmp_path / "i"]
    refused(["collect", "--bookie-conf", conf, *out], conf, "cannot be read")
    conf.write_text("ledgerDirectories=/nowhere/at/all\n")
    refused(["collect", "--bookie-conf", conf, *out], "/nowhere/at/all", "no such folder")
    conf.write_text("ledgerDirectories=${somewhere}\n")
    refused(["collect", "--bookie-conf", conf, *out], conf, "${somewhere}", "ledger, index and journal folders")
    refused(["collect", "--bookie-conf", conf, *folders(bookie), *out], "either --bookie-conf")


# Files that are not what they should be

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "zeroed": lambda raw: bytes(len(raw)),
    "empty": lambda _raw: b"",
    "foreign": lambda _raw: b"PK\3\4, an archive; " * 400,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["log", "index", "VERSION"])
def test_damaged_files_of_a_bookie(
    kind: str, damage: str, bookie: BookieDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on, says that it is not complete, and names files: what an index lacks is said by the index."""
    first = bookie.ledger_dirs[0]
    file = {"log": bookie.log(), "index": bookie.index(5), "VERSION": first / "current" / "VERSION"}[kind]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    done = run(capsys, "collect", *folders(bookie), "--out", tmp_path / "i")
    assert (done.code, done.err) == (4, "")
    assert "NOT complete" in done.out.splitlines()[0]
    file = bookie.index(5) if kind == "log" else file
    assert str(file) in done.out
    rows = open_dataset(tmp_path / "i", "inventory").read("damage").to_pylist()
    assert str(file) in {row["file"] for row in rows if row["hides_entries"]}


def flipped(raw: bytes, at: int) -> bytes:
    """The bytes with one bit changed."""
    return raw[:at] + bytes([raw[at] ^ 0x40]) + raw[at + 1 :]


def versioned(raw: bytes, at: int, version: int) -> bytes:
    """The bytes with another version number."""
    return raw[:at] + struct.pack(">i", version) + raw[at + 4 :]


@pytest.mark.parametrize(
    ("name", "change", "words", "code"),
    [
        ("log", lambda raw: flipped(raw, 1024 + 8), "5.idx at byte 1024: dangling", 4),  # a ledger id
        ("log", lambda raw: versioned(raw, 4, 9), "0.log at byte 4: bad version", 0),  # its entries prove themselves
        ("index", lambda raw: flipped(raw, 0), "5.idx at byte 0: bad magic", 4),
        ("index", lambda raw: versioned(raw, 4, 9), "5.idx at byte 4: bad version", 4),
        ("journal", lambda raw: flipped(raw, len(raw) - 100), f"{JOURNAL:x}.txn at byte ", 4),
        ("journal", lambda raw: versioned(raw, 4, 9), f"{JOURNAL:x}.txn at byte 4: bad version", 4),
        ("VERSION", lambda raw: flipped(raw, 5), "VERSION at byte ", 4),
    ],
)
def test_flipped_bits_and_newer_versions(
    name: str,
    change: Callable[[bytes], bytes],
    words: str,
    code: int,
    bookie: BookieDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is found, located and said; the bookie is complete only where nothing can hide behind it."""
    first = bookie.ledger_dirs[0] / "current"
    files = {"log": bookie.log(), "index": bookie.index(5), "journal": bookie.journal(JOURNAL)}
    file = files.get(name, first / "VERSION")
    file.write_bytes(change(file.read_bytes()))
    done = run(capsys, "collect", *folders(bookie), "--deep", "--out", tmp_path / "i")
    assert (done.code, done.err) == (code, "")
    assert words in done.out


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_looked_at_alone(
    damage: str, bookie: BookieDir, capsys: pytest.CaptureFixture[str], refused: Refusal
) -> None:
    """`inspect` says where each file is damaged, exit code 3, or that it is no file of a bookie, exit code 2."""
    for file in (bookie.index(5), bookie.ledger_dirs[0] / "current" / "VERSION"):
        file.write_bytes(DAMAGES[damage](file.read_bytes()[:-2]))  # so that half of it ends inside a slot
        done = run(capsys, "inspect", file)
        assert (done.code, done.err) == (3, "")
        assert "damage at byte" in done.out
    archive = bookie.ledger_dirs[0] / "archive.zip"
    archive.write_bytes(DAMAGES["foreign"](b""))
    refused(["inspect", archive], archive)
    refused(["inspect", bookie.ledger_dirs[0] / "nothing"], "no such file")


# Datasets


def changed(folder: Path, **values: Any) -> None:
    """Change keys of a manifest."""
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **values}))


READERS = pytest.mark.parametrize(
    "reader",
    [
        ["recover", "--layout", "flat", "--out", "new", "--inventory"],
        ["explain", "5", "--inventory"],
    ],
    ids=lambda words: str(words[0]),
)


@READERS
def test_inventories_that_cannot_be_used(
    reader: list[str], inventory: Path, plan: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, half copied, cut, of a newer schema, of another kind: each is said before any work begins."""
    monkeypatch.chdir(inventory.parent)
    refused([*reader, "nowhere"], "nowhere", "no such folder")
    refused([*reader, plan], plan, "is a dataset of kind plan, not inventory")
    part = inventory / open_dataset(inventory, "inventory").parts("copies")[0].file
    whole = part.read_bytes()
    part.write_bytes(whole[:-5])
    refused([*reader, inventory], part, f"has {len(whole) - 5} bytes", "copy or make")
    part.unlink()
    refused([*reader, inventory], part, "is missing", "copy or make")
    part.write_bytes(whole)
    changed(inventory, schema_version=[2, 0], tool_version="7.1.0")
    refused([*reader, inventory], "has schema version 2, this program reads 1", "use bkmeta 7.1.0")
    (inventory / MANIFEST).unlink()
    refused([*reader, inventory], inventory, f"has no {MANIFEST}", "did not end")
    assert not Path("new").exists()


@READERS
def test_a_flipped_bit_in_an_inventory(
    reader: list[str], inventory: Path, tmp_path: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows, or in the name of a column, which would read as nulls: the file is named, and nothing is proposed."""
    monkeypatch.chdir(tmp_path)
    part = inventory / open_dataset(inventory, "inventory").parts("copies")[0].file
    raw = part.read_bytes()
    for at in (40, raw.rindex(b"headers")):
        part.write_bytes(flipped(raw, at))
        refused([*reader, inventory], part, "is not the file that the manifest lists", "copy or make")
        shutil.rmtree("new", ignore_errors=True)


def test_one_bookie_twice(inventory: Path, tmp_path: Path, refused: Refusal) -> None:
    """Two inventories of one bookie, or one named twice, would count its copies twice."""
    other = write_inventory(tmp_path / "other", BOOKIE, range(3), instance="one")
    command = ["recover", "--layout", "flat", "--out", tmp_path / "new", "--inventory", inventory, "--inventory"]
    refused([*command, other], other, BOOKIE, inventory, "once")
    refused([*command, inventory], BOOKIE, "once")


def test_inventories_of_two_clusters(inventory: Path, tmp_path: Path, refused: Refusal) -> None:
    """Two instance ids are two clusters, whatever their bookies are called."""
    other = write_inventory(tmp_path / "other", OTHER, range(3), instance="two")
    command = ["recover", "--layout", "flat", "--out", tmp_path / "new", "--inventory", inventory]
    refused([*command, "--inventory", other], other, "two", "one", "one cluster at a time")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command",
    [["plan", "show"], ["plan", "split", "--waves", "1%,rest", "--out", "new"], ["apply", "--metadata", STORE]],
)
def test_plans_that_cannot_be_used(
    command: list[str], plan: Path, inventory: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut, altered without a change of size, of another kind, of a newer schema: nothing is connected to or written."""
    monkeypatch.chdir(plan.parent)
    refused([*command, inventory], "is a dataset of kind inventory, not plan")
    part = plan / open_dataset(plan, "plan").parts("actions")[1].file
    whole = part.read_bytes()
    part.write_bytes(flipped(whole, len(whole) // 2))
    refused([*command, plan], "actions", "copy or make")
    part.write_bytes(whole[:-1])
    refused([*command, plan], part, "bytes, the manifest says")
    part.write_bytes(whole)
    changed(plan, schema_version=[9, 0])
    refused([*command, plan], "has schema version 9")


def test_a_wave_that_a_plan_does_not_have(plan: Path, refused: Refusal) -> None:
    """It is not an empty piece of work that succeeds."""
    refused(["apply", plan, "--metadata", STORE, "--wave", "3", "--confirm", "12345678"], "has no wave 3", "plan show")


# Files and options that operators write


@pytest.fixture
def recover(inventory: Path, tmp_path: Path) -> list[Any]:
    """The beginning of a command line that is whole but for what a test adds."""
    return ["recover", "--layout", "flat", "--inventory", inventory, "--out", tmp_path / "new"]


def test_passwords_that_others_can_read(recover: list[Any], tmp_path: Path, refused: Refusal) -> None:
    """Refused with the command that mends it; what is in it is never shown."""
    passwords = tmp_path / "passwords"
    passwords.write_text("hunter2\n")
    passwords.chmod(0o640)
    refused([*recover, "--passwords", passwords], passwords, "mode 0640", f"chmod 600 {passwords}")
    passwords.chmod(0o600)
    passwords.write_text("first\nbase64:hunter2!\n")
    refused([*recover, "--passwords", passwords], f"{passwords}, line 2", "not base64")
    refused([*recover, "--passwords", tmp_path / "nothing"], tmp_path / "nothing", "cannot be read")
    refused([*recover, "--passwords", tmp_path], "--passwords", "is a directory")


def test_lists_of_bookies_that_say_nothing(recover: list[Any], tmp_path: Path, refused: Refusal) -> None:
    """An empty list, or an archive, must not mean that the cluster has no bookies."""
    names = tmp_path / "bookies.txt"
    refused([*recover, "--expect-bookies", names], names, "cannot be read")
    names.write_text("# none yet\n\n")
    refused([*recover, "--expect-bookies", names], names, "names nothing", "one bookie id a line")
    names.write_bytes(b"\xff\xfe\0")
    refused([*recover, "--expect-bookies", names], names, "is not text")


@pytest.mark.parametrize("quorum", ["3/2", "2/3/2", "3/2/0", "a/b/c", "3/2/2/1"])
def test_quorums_that_cannot_be(quorum: str, recover: list[Any], refused: Refusal) -> None:
    """E, W and A are three numbers that do not grow."""
    refused([*recover, "--default-quorum", quorum], "--default-quorum", "E")


def test_stated_quorums_that_cannot_be(recover: list[Any], tmp_path: Path, refused: Refusal) -> None:
    """Each line is one statement; owners are known by references only."""
    file = tmp_path / "quorums.txt"
    refused([*recover, "--quorums", file], file, "cannot be read")
    file.write_text("0..99 3/2/2\n100..199\n")
    refused([*recover, "--quorums", file], f"{file}, line 2", "FIRST..LAST E/W/A")
    file.write_text("owner=app 3/2/2\n")
    refused([*recover, "--quorums", file], file, "give the references")


def test_snapshots_that_are_none(recover: list[Any], tmp_path: Path, inventory: Path, refused: Refusal) -> None:
    """What is neither a catalog nor files of a store is said, with its place."""
    refused([*recover, "--snapshot", "zkfiles://data"], "zkfiles://data", "absolute path")
    refused([*recover, "--snapshot", f"zkfiles://{tmp_path}/nowhere"], "nowhere")
    refused([*recover, "--snapshot", f"catalog://{tmp_path}/nowhere"], "nowhere", "no such folder")
    refused([*recover, "--snapshot", f"catalog://{inventory}"], "kind inventory, not catalog")


def test_where_the_plan_is_for_is_said_once(recover: list[Any], refused: Refusal) -> None:
    """Neither no layout nor two: with --metadata the store says it."""
    refused([*recover, "--metadata", STORE], "--metadata", "--layout")
    refused([word for word in recover if word not in ("--layout", "flat")], "--metadata", "--layout")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("zk1:2181", "unknown kind of store"),
        ("/ledgers", "not a store URI"),
        ("zk+hierarchical://zk1:2181", "names no ledgers root"),
        ("zk+hierarchical://zk1:99999/ledgers", "not host:port"),
        ("zk+hierarchical://zk1 :2181/ledgers", "not host:port"),
        ("zk+hierarchical:///ledgers", "not host:port"),
        ("metadata-store:oxia://o1:6648/default", "Oxia"),
        ("zk+hierarchical://me:secret@zk1:2181/ledgers", "do not belong into a URI"),
    ],
)
def test_uris_that_are_malformed_or_of_other_stores(
    uri: str, words: str, inventory: Path, plan: Path, tmp_path: Path, refused: Refusal
) -> None:
    """Every command that takes one refuses it alike, by its form, before anything is connected to or written."""
    new = tmp_path / "new"
    disk = f"{BOOKIE}={tmp_path}"
    for command in (
        ["capture", "--out", new],
        ["recover", "--inventory", inventory, "--out", new],
        ["apply", plan, "--confirm", open_dataset(plan, "plan").manifest["hash"]],
        ["explain", "5"],
        ["verify", plan, "--disk", disk],
        ["rehearse", plan],
        ["doctor", "--no-spark"],
    ):
        refused([*command, "--metadata", uri], words)
    assert not new.exists()


def test_credentials_that_are_none(tmp_path: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, not what is in it."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", "hunter2")
    refused(["capture", "--metadata", STORE, "--out", tmp_path / "new"], "BKMETA_ZK_AUTH", "user:password")


def test_a_limit_of_reads_is_refused_where_reads_are_not_counted(tmp_path: Path, refused: Refusal) -> None:
    """Files and catalogs: the limit is refused, not ignored; nothing is written."""
    new = tmp_path / "new"
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={}, secret=True) as writer:
        writer.close(coverage={})
    for uri in ("etcdfile:///none", "zkfiles:///none", f"catalog://{tmp_path}/catalog"):
        refused(["capture", "--metadata", uri, "--max-ops-s", "10", "--out", new], uri, "leave that limit out")
    assert not new.exists()


def test_no_command_clears_a_folder_of_somebody_else(
    tmp_path: Path, inventory: Path, plan: Path, bookie: BookieDir, refused: Refusal
) -> None:
    """A bookie's `data/ledgers` given as --out of each command that has one: said, and every file is still there."""
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={"root": "/ledgers"}, secret=True) as writer:
        writer.close(coverage={})
    catalog = f"catalog://{tmp_path}/catalog"
    for command in (
        ["capture", "--metadata", catalog],
        ["collect", *folders(bookie)],
        ["recover", "--inventory", inventory, "--layout", "hierarchical"],
        ["plan", "split", plan],
        ["plan", "edit", plan, "--acl", "world:anyone:r"],
    ):
        for name in ("ledgers", "copies", "actions", "store"):
            out = tmp_path / "data"
            (out / name / "current").mkdir(parents=True)
            (out / name / "current" / "0.log").write_text("entries")
            refused([*command, "--out", out], out, "is not empty", "name an empty or a new folder")
            assert (out / name / "current" / "0.log").read_text() == "entries"
            shutil.rmtree(out)


def test_a_store_that_does_not_answer(
    tmp_path: Path, inventory: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, its address, and what to look at; nothing is left that could be taken for a catalog or a plan."""
    monkeypatch.setenv("BKMETA_PATIENCE_S", "0.2")
    for name, more in (("capture", []), ("recover", ["--inventory", inventory])):
        new = tmp_path / name
        command = [name, *more]
        words = ("127.0.0.1:1", "not available", "see that its servers run")
        refused([*command, "--metadata", STORE, "--out", new], *words, code=1)
        assert not (new / MANIFEST).exists()


@pytest.mark.parametrize("said", ["soon", "0", "-1", "inf"])
def test_patience_that_is_none(said: str, tmp_path: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that says how long to wait, and does not, is named."""
    monkeypatch.setenv("BKMETA_PATIENCE_S", said)
    refused(["capture", "--metadata", STORE, "--out", tmp_path / "new"], "BKMETA_PATIENCE_S", said)


# No Java


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_no_java(home: str | None, inventory: Path, tmp_path: Path) -> None:
    """With a master, `recover` says what it did not find, before it writes; for few ledgers it needs no Java."""
    (tmp_path / "bin").mkdir()
    env = environment(PATH=str(tmp_path / "bin"), JAVA_HOME=home)
    words = ("recover", "--inventory", inventory, "--layout", "flat", "--out", tmp_path / "new")
    done = process(*words, "--master", "local[1]", env=env)
    assert (done.code, done.out) == (2, "")
    assert ("JAVA_HOME=/nowhere" if home else "nothing called java on the PATH") in done.err
    assert "install Java 17" in done.err
    assert not (tmp_path / "new").exists()
    assert process(*words, env=env).code in (0, 3)


def test_no_java_for_much(
    recover: list[Any], tmp_path: Path, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is more than this process does by itself, that is said before anything is written, too."""
    monkeypatch.setattr("reconcile.estimates.HERE_S", -1)
    monkeypatch.setattr("recovery.spark.java_problem", lambda: "finds no Java")
    refused(recover, "finds no Java", "install Java 17")
    assert not (tmp_path / "new").exists()


def test_a_java_that_is_too_old_or_broken(inventory: Path, tmp_path: Path) -> None:
    """Its version is said; one that does not run is named."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    command = ["recover", "--inventory", inventory, "--layout", "flat", "--out", tmp_path / "new", "--master", "local"]
    for script, words in (("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11.0.2"), ("exit 3", "does not run")):
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        done = process(*command, env=environment(PATH=f"{java.parent}:/usr/bin:/bin", JAVA_HOME=None))
        assert done.code == 2
        assert words in done.err


# A full disk


def on_a_disk_of(kilobytes: int, *arguments: object, program: str = str(PROGRAM)) -> Done:
    """Run the program where no file can grow beyond a size: what a full disk says, without one."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'ulimit -f {2 * kilobytes}; exec "$@"', "sh", program, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_full_disk_under_collect(bookie: BookieDir, tmp_path: Path) -> None:
    """Exit code 1, the file and what to do; what is there is no inventory, and the next run makes one of it."""
    out = tmp_path / "inventory"
    command = ["collect", *folders(bookie), "--out", out]
    done = on_a_disk_of(1, *command)
    assert (done.code, done.out) == (1, "")
    assert str(out) in done.err
    assert "free space" in done.err
    assert "Traceback" not in done.err
    assert not (out / MANIFEST).exists()
    assert process(*command).code == 0
    open_dataset(out, "inventory").verify()


def test_a_full_disk_under_a_report_costs_the_report_only(tmp_path: Path) -> None:
    """It is said, and nothing is there by half; the dataset beside it and the exit code are as they were."""
    code = (
        "import sys; from pathlib import Path; from reconcile.report.pages import write_page\n"
        "write_page(Path(sys.argv[1]), lambda: 'x' * 100_000)"
    )
    done = on_a_disk_of(8, "-c", code, tmp_path, program=sys.executable)
    assert (done.code, done.out) == (0, "")
    assert f"{tmp_path}/report.html cannot be written" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_under_a_new_plan(plan: Path, tmp_path: Path) -> None:
    """A plan that is cut into waves onto a full disk: exit code 1, no plan, the old one as it was."""
    done = on_a_disk_of(2, "plan", "split", plan, "--waves", "10%,rest", "--out", tmp_path / "new")
    assert done.code == 1
    assert "cannot be written" in done.err
    assert not (tmp_path / "new" / MANIFEST).exists()
    open_dataset(plan, "plan").verify()


# Stopped


@pytest.mark.parametrize(
    ("stage", "number", "code"),
    [
        ("journals", signal.SIGINT, 130),
        ("index", signal.SIGTERM, 143),
        ("logs", signal.SIGINT, 130),
        ("inventory", signal.SIGTERM, 143),
    ],
)
def test_collect_is_stopped(stage: str, number: signal.Signals, code: int, bookie: BookieDir, tmp_path: Path) -> None:
    """In whichever stage: its own exit code, one message, nothing that could be taken for whole; the next run works."""
    # Entries that the journal alone holds: the last stage reads it again, for their headers, and takes its time, too.
    write_journal(bookie, JOURNAL, [record(5, 19), *(record(8, n) for n in range(100))])
    out = tmp_path / "inventory"
    command = ["collect", *folders(bookie), "--out", out]
    slow = ["--max-mb-s", "0.01", "--progress", "json"]
    with started(*command, *slow) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if json.loads(line)["stage"] == stage:
                break
        running.send_signal(number)
        out_text, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out_text) == (code, "")
    last = err.splitlines()[-1]
    assert last.startswith("bkmeta: stopped before the end")
    assert "run the same command again" in last
    assert "Traceback" not in err
    assert not (out / MANIFEST).exists()
    assert process(*command).code == 0
    open_dataset(out, "inventory").verify()


@pytest.mark.parametrize(
    ("to", "number", "code", "said"),
    [
        ("all", signal.SIGINT, 130, "stopped before the end"),
        ("first", signal.SIGTERM, 143, "stopped before the end"),
        ("other", signal.SIGKILL, 1, "run it again in one process"),
    ],
)
def test_collect_by_several_processes_is_stopped(
    to: str, number: signal.Signals, code: int, said: str, tmp_path: Path
) -> None:
    """By Ctrl-C, which goes to all of them, to the first alone, or one is killed: one message, and none is left."""
    made = make_bookie(tmp_path / "bookie", {ledger << 8: [0] for ledger in range(256)})
    out = tmp_path / "inventory"
    several = ["collect", *folders(made), "--out", out, "--processes", "3", "--max-mb-s", "0.2", "--incremental"]
    with started(*several) as running:
        until(lambda: bool(find_children(running.pid, word="spawn_main")), "another process starts")
        others = find_children(running.pid, word="spawn_main")
        os.kill(-running.pid if to == "all" else running.pid if to == "first" else others[0], number)
        _, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, "Traceback" in err) == (code, False), err
    assert said in err.splitlines()[-1]
    until(lambda: not any(map(is_running, others)), "the others end")
    assert not (out / MANIFEST).exists()


def test_being_stopped_is_an_object_for_programs(bookie: BookieDir, tmp_path: Path) -> None:
    """With --json the last line says that it was stopped, and how to go on."""
    command = ["collect", *folders(bookie), "--out", tmp_path / "i", "--json", "--progress", "json"]
    with started(*command, "--max-mb-s", "0.001") as running:
        assert running.stderr is not None
        running.stderr.readline()
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=PATIENCE_S)
    said = Done(running.returncode, out, "").result
    assert (running.returncode, said["exit_code"], said["schema"]) == (143, 143, "bkmeta.error/1")


# Faults of the program itself


def test_a_fault_of_the_program_is_kept(
    tmp_path: Path, bookie: BookieDir, refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 and a request for a report; what happened is in a file for its owner, not on the screen."""

    def broken(_path: Path) -> None:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(inspect_job, "look", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    refused(["inspect", bookie.log()], "a fault of this program (ZeroDivisionError)", "report it", code=1)
    kept = list(tmp_path.glob("bkmeta-error-*"))
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert all("ZeroDivisionError: hunter2" in path.read_text() and "in broken" in path.read_text() for path in kept)


def test_the_traceback_is_shown_where_it_is_asked_for(
    bookie: BookieDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """BKMETA_DEBUG=1 shows it before the message, also that of an error that the program knows."""
    monkeypatch.setenv("BKMETA_DEBUG", "1")
    done = run(capsys, "inspect", bookie.log().with_name("nothing"))
    assert done.code == 2
    assert done.err.startswith("Traceback")
    assert done.err.splitlines()[-1].startswith("bkmeta: ")


def test_what_the_system_refuses_is_no_fault_of_the_program(
    bookie: BookieDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system that nobody expected is said in its words, and kept too."""

    def refusing(path: Path) -> None:
        raise OSError(24, "Too many open files", str(path))

    monkeypatch.setattr(inspect_job, "look", refusing)
    done = run(capsys, "inspect", bookie.log())
    assert done.code == 1
    assert done.err.startswith(f"bkmeta: {bookie.log()}: Too many open files; fix that")
    assert "where it happened is in" in done.err
