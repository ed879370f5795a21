"""Places of datasets in an object store: what is written is whole or is not there, and comes back as it was."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery import place as place_
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.out_folder import MARK, write_whole
from recovery.place import RemotePlace, copy_tree, remove_tree, to_place
from tests.recovery.test_dataset import ledgers, write
from tests.support.google_store import GoogleStore, started_google_store
from tests.support.object_store import Fault, FaultyProxy, ObjectStore, every, started_store

pytestmark = pytest.mark.long

Store = ObjectStore | GoogleStore
LARGE = 11 << 20
"""Bytes that go up in several parts."""


BOTH = pytest.mark.parametrize("server", ["s3", "gs"], indirect=True)
"""The protocols that a server is at hand for."""


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server of its own for this module; of S3's protocol where nothing else is asked for."""
    if getattr(request, "param", "s3") == "gs":
        with started_google_store(tmp_path_factory.mktemp("account")) as google:
            yield google
    else:
        with started_store() as started:
            yield started


_numbers = itertools.count()


@pytest.fixture
def place(server: Store, monkeypatch: pytest.MonkeyPatch) -> RemotePlace:
    """A new folder in the store, which the environment names."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    found = to_place(f"{server.uri}/test-{next(_numbers)}")
    assert isinstance(found, RemotePlace)
    return found


def through(proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients go through a proxy from now on."""
    for name, value in proxy.environment.items():
        monkeypatch.setenv(name, value)


def key_of(place: RemotePlace) -> str:
    """Name of an object."""
    return place.uri.split("/", 3)[3]


def keys(server: Store, place: RemotePlace) -> list[str]:
    """Names of the objects in a folder, without what stands for folders."""
    prefix = key_of(place)
    return [key.removeprefix(f"{prefix}/") for key in server.list_keys(f"{prefix}/") if not key.endswith("/")]


@BOTH
def test_a_dataset_comes_back_in_order(place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk, spilled runs included; of what it needed meanwhile nothing is left."""
    monkeypatch.setattr("recovery.dataset._SPILL_ROWS", 40)
    write(place, ledgers([*range(100, 0, -1)]), ledgers([*range(101, 201)]))
    opened = open_dataset(str(place), "catalog")
    opened.verify()
    rows = opened.read("ledgers")
    assert sorted(rows["ledger"].to_pylist()) == [*range(1, 201)]
    assert rows["bucket"].to_pylist() == sorted(rows["bucket"].to_pylist())
    low = opened.read("ledgers", buckets=range(2048))
    assert 0 < low.num_rows < 200
    names = keys(server, place)
    assert MANIFEST in names
    assert not [name for name in names if MARK in name or "spill" in name]


@BOTH
def test_the_same_rows_have_the_same_hashes_on_a_disk(place: RemotePlace, tmp_path: Path) -> None:
    """A dataset that is copied down, or up, is the same one."""
    write(place, ledgers([1, 2, 3]))
    copy_tree(place, tmp_path / "down")
    copy_tree(tmp_path / "down", place.with_name("up-again"))
    digests = {
        open_dataset(where, "catalog").digest for where in (place, tmp_path / "down", place.with_name("up-again"))
    }
    assert len(digests) == 1


@BOTH
@pytest.mark.parametrize("altered", ["cut", "another byte", "gone"])
def test_a_file_that_is_another_one_is_refused(place: RemotePlace, server: Store, altered: str) -> None:
    """By its size, by its hash, or because it is not there; each names it."""
    write(place, ledgers([1, 2, 3]))
    key = f"{key_of(place)}/ledgers/part-00000.parquet"
    raw = server.read(key)
    if altered == "gone":
        server.remove(key)
    else:
        server.write(key, raw[:-1] if altered == "cut" else raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    with pytest.raises(DatasetError, match="part-00000") as refused:
        open_dataset(place, "catalog").read("ledgers")
    assert refused.value.path.startswith(place.uri)


@BOTH
def test_what_a_broken_off_run_left_is_cleared_and_nothing_else(place: RemotePlace, server: Store) -> None:
    """A folder without our mark is refused as it is; one with it is written anew."""
    prefix = key_of(place)
    server.write(f"{prefix}/ledgers/theirs", b"of somebody")
    with pytest.raises(DatasetError, match="is not empty"):
        write(place, ledgers([1]))
    assert keys(server, place) == ["ledgers/theirs"]
    server.write(f"{prefix}/{MARK}", b'{"kind": "catalog", "tool_version": "0"}')
    write(place, ledgers([1]))
    assert "ledgers/theirs" not in keys(server, place)
    with pytest.raises(DatasetError, match="already holds a dataset"):
        write(place, ledgers([2]))


@BOTH
def test_a_run_that_fails_leaves_no_dataset(place: RemotePlace, server: Store) -> None:
    """Parts may be there; the manifest, which makes them a dataset, is not."""

    def fail() -> None:
        with write_whole(place / "file", secret=True) as file:
            file.sink.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert keys(server, place) == []
    with pytest.raises(DatasetError, match="no such folder"):
        open_dataset(place, "catalog")


@pytest.mark.parametrize("size", [1000, LARGE])
@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.CUT_UPLOAD, Fault.TORN_UPLOAD, Fault.LOST_ANSWER, Fault.SLOW])
def test_a_file_is_whole_whatever_becomes_of_requests(
    place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch, fault: Fault, size: int
) -> None:
    """Every third request goes wrong: in the end the store has the bytes that were written."""
    raw = bytes(range(256)) * (size // 256 + 1)
    with FaultyProxy(server, every(12 if fault is Fault.THROTTLED else 3, fault)) as proxy:
        through(proxy, monkeypatch)
        with write_whole(place / "file", secret=True) as file:
            file.sink.write(raw)
        assert (place / "file").read_bytes() == raw
    assert proxy.happened[fault]
    assert server.read(key_of(place / "file")) == raw


@pytest.mark.parametrize("server", ["gs"], indirect=True)
@pytest.mark.parametrize("fault", [Fault.CUT_UPLOAD, Fault.TORN_UPLOAD, Fault.LOST_ANSWER])
def test_a_file_of_googles_is_whole_whatever_becomes_of_requests(
    place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A small one: this server does not say how far a large one came, which goes up in parts."""
    with FaultyProxy(server, every(3, fault)) as proxy:
        through(proxy, monkeypatch)
        with write_whole(place / "file", secret=True) as file:
            file.sink.write(b"12345678" * 100)
    assert proxy.happened[fault]
    assert server.read(key_of(place / "file")) == b"12345678" * 100


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.CUT_DOWNLOAD, Fault.LOST_ANSWER, Fault.SLOW])
def test_a_dataset_is_read_whatever_becomes_of_requests(
    place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """Every third answer is late, cut, or not there: asked again, the rows are right."""
    write(place, ledgers([*range(500)]))
    with FaultyProxy(server, every(12 if fault is Fault.THROTTLED else 3, fault)) as proxy:
        through(proxy, monkeypatch)
        rows = open_dataset(place, "catalog").read("ledgers")
    assert proxy.happened[fault]
    assert sorted(rows["ledger"].to_pylist()) == [*range(500)]


def test_bytes_that_are_other_ones_are_never_taken(
    place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong bit on the way is an error, and not a row."""
    write(place, ledgers([*range(500)]))
    opened = open_dataset(place, "catalog")
    with FaultyProxy(server, every(1, Fault.ALTERED_DOWNLOAD)) as proxy:
        through(proxy, monkeypatch)
        with pytest.raises(DatasetError, match="part-00000"):
            opened.read("ledgers")


def test_a_store_that_never_holds_what_was_written_is_an_error(
    place: RemotePlace, server: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All uploads are torn, and all answers are good: nothing is called written."""
    with FaultyProxy(server, lambda method, _path, _port: Fault.TORN_UPLOAD if method == "PUT" else None) as proxy:
        through(proxy, monkeypatch)
        with (
            pytest.raises(DatasetError, match="is not what was written"),
            write_whole(place / "x", secret=False) as file,
        ):
            file.sink.write(b"12345678")


@BOTH
def test_removing_leaves_what_stands_beside(place: RemotePlace, server: Store) -> None:
    """A folder goes with what is in it, and not one whose name begins alike."""
    prefix = key_of(place)
    for name in ("a/b/c", "a/d", "ab/e"):
        server.write(f"{prefix}/{name}", b"1")
    assert [item.name for item in place.iterdir()] == ["a", "ab"]
    assert [item.name for item in (place / "a").iterdir()] == ["b", "d"]
    remove_tree(place / "a", ignore_errors=False)
    assert keys(server, place) == ["ab/e"]
    (place / "a" / "d").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (place / "a" / "d").unlink()
    assert [item.name for item in place.iterdir() if item.is_dir() and not item.is_file()][-1] == "ab"


def test_google_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens, that is said when patience is over, and not after a quarter of an hour."""
    monkeypatch.setattr(place_, "_PATIENCE_S", 1)
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(DatasetError, match=r"gs://bucket/dir: cannot be read"):
        open_dataset("gs://bucket/dir", "catalog")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAIOSFODNN7EXAMPLE:topsecret@bucket/dir",
        "s3://bucket/dir?secret_key=topsecret",
        "gs://bucket/dir#topsecret",
        "hdfs://user:topsecret@host/dir",
        "file:///dir?token=topsecret",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    """They would stand in plans and logs."""
    with pytest.raises(InputError) as refused:
        to_place(uri)
    assert "topsecret" not in str(refused.value)
    assert "environment" in str(refused.value)


@pytest.mark.parametrize("uri", ["s3://", "s3:///dir", "s3://bucket/a//b", "s3://bucket/../b", "file://host/dir"])
def test_a_uri_that_names_no_place_is_refused(uri: str) -> None:
    """Rather than taken for another one."""
    with pytest.raises(InputError):
        to_place(uri)


def test_paths_and_uris_of_files_are_folders_of_this_machine(tmp_path: Path) -> None:
    """A colon in a name makes no URI of it."""
    assert to_place("file:///a%20b/c") == Path("/a b/c")
    assert to_place("a:b/c") == Path("a:b/c")
    write(tmp_path / "here", ledgers([1]))
    assert open_dataset(f"file://{tmp_path}/here", "catalog").rows("ledgers") == 1


def test_a_file_system_that_is_no_object_store_gives_names_to_whole_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS has a file from its first byte on: it gets its name by a rename, in place of an older one."""
    from pyarrow import fs  # noqa: PLC0415 - stands for a server of HDFS, which needs Hadoop's native library

    monkeypatch.setattr(place_, "_connect", lambda *_: fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    target = to_place("hdfs://host:8020/dir/file")
    for raw in (b"one", b"another"):
        with write_whole(target, secret=False) as file:
            file.sink.write(raw)
        assert target.read_bytes() == raw
    assert [path.name for path in (tmp_path / "dir").iterdir()] == ["file"]


class Hdfs:
    """Files of this machine, with what a real HDFS was seen to do: one error for all, and a noise for each open one."""

    type_name = "hdfs"

    def __init__(self, folder: Path) -> None:
        from pyarrow import fs  # noqa: PLC0415 - as above

        self._files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        self.opened: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def open_input_stream(self, path: str) -> object:
        """Open, and note it."""
        self.opened.append(path)
        return self._files.open_input_stream(path)

    def delete_file(self, path: str) -> None:
        """Fail without saying why."""
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            raise OSError(5, "HDFS delete failed") from None


def test_files_that_hdfs_does_not_have_are_missing_and_nothing_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are removed without a word, and not opened to see that: its library writes to stderr then."""
    hdfs = Hdfs(tmp_path)
    monkeypatch.setattr(place_, "_connect", lambda *_: hdfs)
    missing = to_place("hdfs://host:8020/dir/file")
    assert isinstance(missing, RemotePlace)
    missing.unlink(missing_ok=True)
    for look in (missing.unlink, missing.read_bytes):
        with pytest.raises(FileNotFoundError):
            look()
    (tmp_path / "dir").mkdir()
    with pytest.raises(DatasetError, match="has no manifest"):
        open_dataset("hdfs://host:8020/dir", "catalog")
    assert hdfs.opened == []
