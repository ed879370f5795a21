"""What a store held earlier, as it lies on a disk: real files of ZooKeeper and etcd, in every form that people keep."""

import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reconcile.snapshots import find_snapshots
from reconcile.stores import open_store
from recovery.errors import InputError
from tests.support import cases
from tests.support.command import run
from tests.support.paths import DATA

LIVE = "zk+hierarchical://nowhere:2181/ledgers"
DATABASE = DATA / "etcd" / "final.db"


def pack(source: Path, to: Path, mode: str) -> Path:
    """Write a tar of a folder or a file."""
    with tarfile.open(to, mode) as tar:  # type: ignore[call-overload]  # the mode is a parameter here
        tar.add(source, source.name)
    return to


def list_root(given: str, live: str | None) -> list[str] | None:
    """Return the names below the ledgers root of what was given."""
    with find_snapshots([given], live) as (uri,), open_store(uri) as opened:
        return opened.store.children(opened.root)


@pytest.fixture
def folder() -> Path:
    """The data folder of a real ZooKeeper server."""
    return cases.case_dir("c04") / "zookeeper"


def keep_folder(folder: Path, _to: Path) -> Path:
    """As it is."""
    return folder


def keep_newest_snapshot(folder: Path, to: Path) -> Path:
    """One file of it, by another name."""
    newest = max(folder.rglob("snapshot.*"), key=lambda path: int(path.name.split(".")[1], 16))
    return Path(shutil.copy(newest, to / "as-i-called-it"))


def keep_tar(folder: Path, to: Path) -> Path:
    """Not compressed."""
    return pack(folder, to / "zk1.tar", "w")


def keep_tar_of_gzip(folder: Path, to: Path) -> Path:
    """Compressed."""
    return pack(folder, to / "zk1.tar.gz", "w:gz")


def keep_tar_of_xz(folder: Path, to: Path) -> Path:
    """Compressed otherwise."""
    return pack(folder, to / "zk1.txz", "w:xz")


@pytest.mark.parametrize("keep", [keep_folder, keep_tar, keep_tar_of_gzip, keep_tar_of_xz])
def test_every_form_of_a_server_s_folder_shows_the_same(
    keep: Callable[[Path, Path], Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the URI of the folder does; what was unpacked is gone afterwards."""
    wanted = list_root(f"zkfiles://{folder}", None)
    assert wanted
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert list_root(str(keep(folder, tmp_path)), LIVE) == wanted
    assert not list(tmp_path.glob("bkmeta-*"))


def test_one_snapshot_is_known_by_its_bytes_and_keeps_its_root(folder: Path, tmp_path: Path) -> None:
    """Whatever its name; the root and the layout are those of the live store."""
    kept = keep_newest_snapshot(folder, tmp_path)
    assert list_root(str(kept), LIVE) == list_root(f"zkfiles://{kept}", None)
    with find_snapshots([str(kept)], "zk+longhierarchical://h:2181/pulsar/ledgers") as (uri,):
        assert uri == f"zkfiles://{kept}?root=/pulsar/ledgers&layout=longhierarchical"
    with find_snapshots([str(kept)], "etcd://h:2379/bk") as (uri,):
        assert uri == f"zkfiles://{kept}"


def test_a_database_of_etcd_in_every_form(tmp_path: Path) -> None:
    """As `etcdctl snapshot save` left it, in a member's folder, and in an archive of that."""
    wanted = list_root(f"etcdfile://{DATABASE}", None)
    assert wanted
    member = tmp_path / "infra0.etcd" / "member" / "snap"
    member.mkdir(parents=True)
    shutil.copy(DATABASE, member / "db")
    packed = pack(tmp_path / "infra0.etcd", tmp_path / "member.tgz", "w:gz")
    for given in (DATABASE, tmp_path / "infra0.etcd", packed):
        assert list_root(str(given), None) == wanted


def test_uris_and_captures_stay_what_they_are(tmp_path: Path) -> None:
    """A URI is never looked at here, and a capture's folder is named by its path."""
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "manifest.json").write_text("{}")
    given = ["catalog:///c", "zkfiles:///d?root=/r", "s3://bucket/capture", str(tmp_path / "capture")]
    with find_snapshots(given, LIVE) as uris:
        assert list(uris) == given


def test_what_is_nothing_of_a_store_is_refused_by_name(tmp_path: Path) -> None:
    """A path that leads nowhere, a bookie's file, an empty folder, two databases."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "two").mkdir()
    for name in ("a.db", "b.db"):
        shutil.copy(DATABASE, tmp_path / "two" / name)
    (tmp_path / "0.log").write_bytes(b"BKLO" + bytes(1020))
    for name, problem in (
        ("nowhere", "is not there"),
        ("0.log", "another kind: entry log"),
        ("empty", "files of neither ZooKeeper nor etcd"),
        ("two", "2 databases of etcd"),
    ):
        with pytest.raises(InputError, match=problem), find_snapshots([str(tmp_path / name)], None):
            pass


def test_an_archive_cannot_write_elsewhere_and_a_damaged_one_is_said(folder: Path, tmp_path: Path) -> None:
    """A member that climbs out ends it; links are left out; one that is cut names itself and the way round."""
    climbing = tmp_path / "climbing.tar"
    with tarfile.open(climbing, "w") as tar:
        member = tarfile.TarInfo("../../outside")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    with pytest.raises(InputError, match="cannot be unpacked"), find_snapshots([str(climbing)], None):
        pass
    linked = tmp_path / "linked.tar"
    with tarfile.open(linked, "w") as tar:
        link = tarfile.TarInfo("version-2/snapshot.5")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(InputError, match="neither ZooKeeper nor etcd"), find_snapshots([str(linked)], None):
        pass
    packed = pack(folder, tmp_path / "w.tar.gz", "w:gz").read_bytes()
    for size in (20, len(packed) // 2):
        short = tmp_path / f"short-{size}.tar.gz"
        short.write_bytes(packed[:size])
        with pytest.raises(InputError, match="cannot be unpacked"), find_snapshots([str(short)], None):
            pass
    whole = gzip.decompress(packed)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: len(whole) * 2 // 3 // 512 * 512 - 100])
    with pytest.raises(InputError, match="cannot be unpacked"), find_snapshots([str(cut)], None):
        pass


def test_explain_says_of_an_archive_what_it_says_of_the_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, from real files."""
    ledger = str(cases.truth("c04")["ledgers"][0]["ledger"])
    packed = pack(folder, tmp_path / "zk1.tar.gz", "w:gz")
    by_uri = run(capsys, "explain", ledger, "--snapshot", f"zkfiles://{folder}", "--json")
    by_path = run(capsys, "explain", ledger, "--snapshot", packed, "--json")
    assert (by_path.code, by_path.result["verdict"]) == (by_uri.code, by_uri.result["verdict"])
    assert by_path.result["counts"] == by_uri.result["counts"]
