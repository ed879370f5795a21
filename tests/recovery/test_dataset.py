"""Datasets: what is written comes back in order, and what is not whole is refused by name."""

import io
import itertools
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery import dataset, verified_file
from recovery import manifest as manifest_
from recovery.dataset import MANIFEST, Dataset, DatasetWriter, open_dataset, prepare, write_part
from recovery.errors import DatasetError
from recovery.manifest import digest_of
from recovery.model import tables
from recovery.model.ids import BUCKETS, buckets
from recovery.out_folder import MARK, claim_folder, create_file
from recovery.place import DatasetPlace


def ledgers(ids: list[int], scope: int = 0) -> pa.Table:
    """Catalog rows of the given ledgers, in the given order."""
    rows = len(ids)
    ledger = np.array(ids, np.int64)
    scopes = np.full(rows, scope, np.int64)
    columns = {field.name: pa.nulls(rows, field.type) for field in tables.CATALOG_LEDGERS}
    columns["bucket"] = pa.array(buckets(scopes, ledger), pa.int16())
    columns["scope"], columns["ledger"] = pa.array(scopes), pa.array(ledger)
    columns["raw"] = pa.array([str(i).encode() for i in ids], pa.binary())
    columns["version"] = pa.array(range(rows), pa.int64())
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def write(folder: DatasetPlace, *batches: pa.Table, secret: bool = False) -> None:
    """Write a catalog of the batches."""
    with DatasetWriter(folder, "catalog", binding={"of": "a test"}, secret=secret) as out:
        for batch in batches:
            out.append("ledgers", batch)
        out.close(coverage={})


@pytest.fixture(params=["whole", "by a scan"])
def both_readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read whole, large ones by a scan: here small ones by both."""
    if request.param == "by a scan":
        monkeypatch.setattr(dataset, "_is_small", lambda _: False)


@pytest.fixture
def small_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs spill after a few rows, so that merging happens."""
    monkeypatch.setattr(dataset, "_SPILL_ROWS", 40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    batches=st.lists(st.lists(st.integers(0, 2**63 - 1), unique=True, min_size=1, max_size=60), min_size=1, max_size=4)
)
@pytest.mark.usefixtures("small_spills")
def test_rows_come_back_in_bucket_order_however_they_were_given(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    """With and without spilled runs: nothing lost, nothing added, sorted by key."""
    folder = tmp_path_factory.mktemp("dataset") / "d"
    write(folder, *map(ledgers, batches))
    found = open_dataset(folder, "catalog")
    rows = found.read("ledgers")
    assert sorted(rows["ledger"].to_pylist()) == sorted(i for batch in batches for i in batch)
    keys = list(zip(rows["bucket"].to_pylist(), rows["scope"].to_pylist(), rows["ledger"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert pa.concat_tables(found.batches("ledgers")).equals(rows)
    found.verify()
    assert not (folder / ".spill").exists()


@pytest.mark.usefixtures("both_readers")
def test_bucket_ranges_cut_a_table_without_loss(tmp_path: Path) -> None:
    """The ranges' rows are the whole table's, range after range."""
    write(tmp_path / "d", ledgers(list(range(500))))
    found = open_dataset(tmp_path / "d", "catalog")
    edges = [0, 1, 700, 4000, BUCKETS]
    parts = [found.read("ledgers", buckets=range(a, b)) for a, b in itertools.pairwise(edges)]
    assert pa.concat_tables(parts).equals(found.read("ledgers"))
    batches = [batch.select(["version"]) for batch in found.batches("ledgers", columns=["version"])]
    assert pa.concat_tables(batches).equals(found.read("ledgers", columns=["version"]))


def test_a_writer_that_dies_leaves_no_dataset_and_the_next_one_starts_afresh(tmp_path: Path) -> None:
    """Without its manifest a folder is refused by name, and the same command may be run again."""
    folder = tmp_path / "d"

    def dies() -> None:
        with DatasetWriter(folder, "catalog", binding={}) as out:
            out.append("ledgers", ledgers([1]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dies()
    with pytest.raises(DatasetError, match="the run that wrote it did not end"):
        open_dataset(folder, "catalog")
    write(folder, ledgers([2]))
    assert open_dataset(folder, "catalog").read("ledgers")["ledger"].to_pylist() == [2]


def test_a_whole_dataset_is_never_written_over(tmp_path: Path) -> None:
    """A second run into the same folder is refused, and changes nothing."""
    write(tmp_path / "d", ledgers([1]))
    before = (tmp_path / "d" / MANIFEST).read_bytes()
    with pytest.raises(DatasetError, match="already holds a dataset"):
        write(tmp_path / "d", ledgers([2]))
    assert (tmp_path / "d" / MANIFEST).read_bytes() == before


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """What is not ours is neither removed nor mixed with a dataset."""
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(DatasetError, match=r"precious\.txt"):
        prepare(tmp_path, "catalog", secret=False)
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", sorted(tables.KINDS))
def test_a_folder_of_somebody_else_is_never_cleared(kind: str, tmp_path: Path) -> None:
    """A bookie's `ledgers`, an operator's `copies`: names that a dataset has, too, without our mark; all stays."""
    for name in (*tables.KINDS[kind], "store", "earlier", "inventories", "again", ".spill"):
        folder = tmp_path / name
        (folder / name / "current").mkdir(parents=True)
        (folder / name / "current" / "0.log").write_text("entries")
        with pytest.raises(DatasetError, match="is not empty"):
            prepare(folder, kind, secret=True)
        assert (folder / name / "current" / "0.log").read_text() == "entries"
        assert sorted(entry.name for entry in folder.iterdir()) == [name]


def test_a_broken_off_run_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """Its mark says what it was writing; a file that somebody put there since then is kept, too."""
    prepare(tmp_path, "catalog", secret=False)
    (tmp_path / "ledgers").mkdir()
    with pytest.raises(DatasetError, match="kind catalog, not inventory"):
        claim_folder(tmp_path, "inventory", ["ledgers"], secret=False)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match=r"notes\.txt"):
        prepare(tmp_path, "catalog", secret=False)
    assert (tmp_path / "ledgers").is_dir()
    (tmp_path / "notes.txt").unlink()
    prepare(tmp_path, "catalog", secret=False)
    assert [entry.name for entry in tmp_path.iterdir()] == [MARK]


_HOLD: Final = """
import sys
from pathlib import Path
from recovery.dataset import prepare
prepare(Path(sys.argv[1]), "plan", secret=True)
(Path(sys.argv[1]) / "actions").mkdir()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_that_another_run_writes_is_refused_until_that_run_has_ended(tmp_path: Path) -> None:
    """Nothing of the other run is cleared. When it was killed, its folder is cleared and taken."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "plan")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DatasetError, match="another run is writing there"):
            prepare(tmp_path / "plan", "plan", secret=True)
        assert (tmp_path / "plan" / "actions").is_dir()
        other.kill()
    prepare(tmp_path / "plan", "plan", secret=True)
    assert not (tmp_path / "plan" / "actions").exists()
    prepare(tmp_path / "plan", "plan", secret=True)


def test_the_mark_goes_when_the_dataset_is_whole(tmp_path: Path) -> None:
    """A whole dataset has none, so that nothing of it is ever cleared, even without its manifest."""
    write(tmp_path / "d", ledgers([1]))
    assert not (tmp_path / "d" / MARK).exists()
    (tmp_path / "d" / MANIFEST).unlink()
    with pytest.raises(DatasetError, match="is not empty"):
        write(tmp_path / "d", ledgers([2]))
    assert (tmp_path / "d" / "ledgers" / "part-00000.parquet").exists()


@pytest.mark.parametrize("secret", [True, False])
def test_an_empty_folder_that_others_write_in_is_closed(secret: bool, tmp_path: Path) -> None:
    """Of mode 0777: nobody else writes there afterwards, and nobody else reads where passwords will stand."""
    tmp_path.chmod(0o777)
    prepare(tmp_path, "catalog", secret=secret)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == (0o700 if secret else 0o755)


def test_files_are_made_where_no_link_leads_away(tmp_path: Path) -> None:
    """A symbolic link with the name of a file that is written is replaced; what it points to stays as it is."""
    (tmp_path / "other").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").symlink_to(tmp_path / "other")
    os.close(create_file(tmp_path / "out" / "file", secret=True))
    assert (tmp_path / "other").read_text() == "mine"
    assert stat.S_IMODE((tmp_path / "out" / "file").lstat().st_mode) == 0o600


def test_a_half_copied_dataset_is_refused_with_the_file_that_is_missing(tmp_path: Path) -> None:
    """A part that is gone, or cut, is named before anything is read."""
    write(tmp_path / "d", ledgers([1, 2, 3]))
    part = tmp_path / "d" / "ledgers" / "part-00000.parquet"
    content = part.read_bytes()
    part.write_bytes(content[:-7])
    with pytest.raises(DatasetError, match="bytes, the manifest says"):
        open_dataset(tmp_path / "d", "catalog")
    part.unlink()
    with pytest.raises(DatasetError, match=r"part-00000\.parquet: is missing"):
        open_dataset(tmp_path / "d", "catalog")


def flipped(content: bytes, at: int) -> bytes:
    """The same bytes with a bit of one of them flipped."""
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


@pytest.mark.usefixtures("both_readers")
def test_a_flipped_bit_never_becomes_a_row(tmp_path: Path) -> None:
    """Whichever byte of a part is flipped, in its footer as well: refused by every way of reading."""
    write(tmp_path / "d", ledgers(list(range(50))))
    part = tmp_path / "d" / "ledgers" / "part-00000.parquet"
    content = part.read_bytes()
    columns = content.rindex(b"raw")
    ways: list[Callable[[Dataset], object]] = [
        Dataset.verify,
        lambda found: found.read("ledgers"),
        lambda found: found.read("ledgers", buckets=range(BUCKETS), columns=["ledger"]),
        lambda found: list(found.batches("ledgers")),
        lambda found: found.bounds("ledgers", "ledger"),
    ]
    for at in {*range(0, len(content), max(1, len(content) // 40)), columns}:
        part.write_bytes(flipped(content, at))
        for read in ways:
            with pytest.raises(DatasetError, match=r"part-00000\.parquet: is not the file .* copy or make"):
                read(open_dataset(tmp_path / "d", "catalog"))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash blocks of a KiB, so that a small file has many."""
    monkeypatch.setattr(verified_file, "BLOCK", 1 << 10)
    monkeypatch.setattr(manifest_, "BLOCK", 1 << 10)


@pytest.mark.usefixtures("small_blocks")
def test_only_what_is_touched_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of few buckets of a large file hashes their row groups and the footer, and no damage elsewhere."""
    monkeypatch.setattr(dataset, "_ROW_GROUP", 100)
    write(tmp_path / "d", ledgers(list(range(20_000))))
    found = open_dataset(tmp_path / "d", "catalog")
    (part,) = found.parts("ledgers")
    assert len(part.blocks) == -(-part.bytes // 1024) > 100
    path = tmp_path / "d" / part.file
    path.write_bytes(flipped(path.read_bytes(), 20))
    assert found.read("ledgers", buckets=range(4000, 4010)).num_rows > 0
    with pytest.raises(DatasetError, match="is not the file"):
        found.read("ledgers", buckets=range(10))


@pytest.mark.usefixtures("small_blocks")
def test_files_that_were_written_before_blocks_were_hashed_are_hashed_whole(tmp_path: Path) -> None:
    """They are read, and a flipped bit anywhere is seen whatever is read of them."""
    write(tmp_path / "d", ledgers(list(range(500))))
    path = tmp_path / "d" / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["digest"]
    for parts in manifest["tables"].values():
        for part in parts:
            del part["blocks"]
    path.write_text(json.dumps(manifest))
    assert open_dataset(tmp_path / "d", "catalog").read("ledgers").num_rows == 500
    part = tmp_path / "d" / "ledgers" / "part-00000.parquet"
    part.write_bytes(flipped(part.read_bytes(), 20))
    with pytest.raises(DatasetError, match="is not the file"):
        open_dataset(tmp_path / "d", "catalog").read("ledgers", buckets=range(4000, 4010))


@given(
    st.binary(min_size=1, max_size=9000), st.lists(st.tuples(st.integers(0, 9000), st.integers(-1, 9000)), max_size=9)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small_blocks")
def test_a_verified_file_reads_as_the_file(content: bytes, places: list[tuple[int, int]]) -> None:
    """From any place, any length: the same bytes as from the file itself."""
    whole, blocks = verified_file.hash_blocks(io.BytesIO(content))
    plain = io.BytesIO(content)
    found = verified_file.VerifiedFile(
        lambda: pa.BufferReader(content), len(content), whole, blocks, lambda: AssertionError("not altered")
    )
    for at, size in places:
        assert (found.seek(at), found.read(size)) == (plain.seek(at), plain.read(size))


def rewrite(folder: Path, table: pa.Table, *, version: list[int]) -> None:
    """Put another table in place of the ledgers, under a manifest that lists it."""
    part = write_part(folder, "ledgers", "part-00000", [table])
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["schema_version"] = version
    manifest["tables"]["ledgers"] = [asdict(part)]
    manifest["digest"] = digest_of(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.usefixtures("both_readers")
def test_columns_that_are_not_the_tables_are_damage(tmp_path: Path) -> None:
    """Missing, misnamed, of another type: said with file and column, never read as nulls; a null one may be younger."""
    write(tmp_path / "d", ledgers([1, 2]))
    table = ledgers([1, 2])
    older, version = [1, tables.SCHEMA_VERSION[1] - 1], list(tables.SCHEMA_VERSION)
    at = table.schema.get_field_index("acl")
    for wrong, of, problem in (
        (table.drop(["raw"]), version, "has no column raw"),
        (table.drop(["acl"]), version, "has no column acl"),
        (table.drop(["ledger"]), older, "has no column ledger"),
        (table.rename_columns(["rax" if n == "raw" else n for n in table.column_names]), version, "no column raw"),
        (table.set_column(at, "acl", pa.array([1, 2])), version, "column acl of another type"),
    ):
        rewrite(tmp_path / "d", wrong, version=of)
        with pytest.raises(DatasetError, match=problem):
            open_dataset(tmp_path / "d", "catalog").read("ledgers")
    rewrite(tmp_path / "d", table.drop(["acl"]), version=older)
    assert open_dataset(tmp_path / "d", "catalog").read("ledgers")["acl"].to_pylist() == [None, None]


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Coverage, a bound, a count: anybody who changes one, or a disk that does, is found out on opening."""
    write(tmp_path / "d", ledgers([1]))
    path = tmp_path / "d" / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest))
    assert open_dataset(tmp_path / "d", "catalog").rows("ledgers") == 1
    path.write_text(json.dumps({**manifest, "coverage": {"complete": True}}))
    with pytest.raises(DatasetError, match="does not agree with its digest"):
        open_dataset(tmp_path / "d", "catalog")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": [2, 0]}, "schema version 2, this program reads 1"),
        ({"kind": "inventory"}, "is a dataset of kind inventory"),
        ({"schema_version": "x"}, "not a manifest of ours"),
        ({"tables": 7}, "not a manifest of ours"),
    ],
)
def test_a_dataset_of_another_kind_or_time_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    """A newer major version, another kind, and what is no manifest are each said in so many words."""
    write(tmp_path / "d", ledgers([1]))
    manifest = tmp_path / "d" / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with pytest.raises(DatasetError, match=message):
        open_dataset(tmp_path / "d", "catalog")


@pytest.mark.usefixtures("both_readers")
def test_columns_of_an_older_minor_version_are_null(tmp_path: Path) -> None:
    """A part without a newer column is read, with nulls there; unknown columns are left out."""
    write(tmp_path / "d", ledgers([5]))
    rows = open_dataset(tmp_path / "d", "catalog").read("ledgers")
    older = rows.drop_columns(["acl"]).append_column("from_the_future", pa.array([1]))
    rewrite(tmp_path / "d", older, version=[1, tables.SCHEMA_VERSION[1] - 1])
    found = open_dataset(tmp_path / "d", "catalog").read("ledgers")
    assert found.schema.names == tables.CATALOG_LEDGERS.names
    assert found["acl"].to_pylist() == [None]


def test_secret_datasets_are_for_their_owner_only(tmp_path: Path) -> None:
    """Every file of a dataset that holds passwords has mode 0600, and the manifest says so."""
    write(tmp_path / "d", ledgers([1]), secret=True)
    files = [p for p in (tmp_path / "d").rglob("*") if p.is_file()]
    assert files
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in files)
    assert json.loads((tmp_path / "d" / MANIFEST).read_text())["secret"] is True


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let this process write no file longer than so many bytes: what a full disk says, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_clear_error_and_leaves_no_dataset(tmp_path: Path) -> None:
    """The error names the file and the remedy; the folder is not a dataset."""
    with disk_of(2000), pytest.raises(DatasetError, match="cannot be written"):
        write(tmp_path / "d", ledgers(list(range(3000))))
    with pytest.raises(DatasetError, match="did not end"):
        open_dataset(tmp_path / "d", "catalog")


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    """An empty answer must mean that there was nothing, so no folder is an error."""
    with pytest.raises(DatasetError, match="no such folder"):
        open_dataset(tmp_path / "nowhere", "inventory")
