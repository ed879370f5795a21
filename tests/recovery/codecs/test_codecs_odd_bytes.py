"""Bytes that broke a reader once, found by fuzzing or by looking for more of the kind: each has a named answer now."""

import hashlib
import json
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.zkfiles import snapshot
from reconcile import references
from reconcile.check.preflight import gc_settings
from reconcile.errors import JournalError
from reconcile.jobs.diagnose.audit import read_journal
from reconcile.write import audit_journal, rehearse, undo
from reconcile.write.freezing import freeze
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import DatasetError, FormatError, InputError
from recovery.model import groups
from tests.support import paths
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

DATA = paths.DATA
NESTED = b"[" * 200_000
"""JSON deeper than Python's reader goes."""
ENDLESS = b'{"schema_version": [1e999], "kind": "plan", "tables": {}, "n": 1e999}'
"""JSON with a number that is none."""


def _bound(*lines: Mapping[str, object]) -> bytes:
    """Return lines as a journal whose hashes are right."""
    raw, previous = b"", ""
    for number, fields in enumerate(lines):
        body = json.dumps({"n": number, "prev": previous, "at": "2026-01-01T00:00:00+00:00", **fields}).encode()
        previous = hashlib.sha256(body).hexdigest()
        raw += body[:-1] + b',"hash":"' + previous.encode() + b'"}\n'
    return raw


def test_a_list_of_many_runs_costs_little_memory() -> None:
    """Two overlapping groups of some millions of runs, 112 bytes of a bookie's answer: refused, in little memory."""
    pairs = ((0, 1 << 24, 1, 2), (1, (1 << 24) + 1, 1, 2))
    raw = struct.pack(">ii56x", 0, 2) + b"".join(struct.pack(">qqii", *pair) for pair in pairs)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="too many runs"):
            groups.decode_availability(raw)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("raw", [b'{"ledger": 5, "o\xeek": 1}\n', b'{"ledger": 5, "owner": "a\xee"}\n'])
def test_references_that_are_not_text_are_refused(tmp_path: Path, raw: bytes) -> None:
    """A field's name or value that is no UTF-8 is an error of the file, not of the program."""
    path = tmp_path / "references.jsonl"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"references\.jsonl"):
        references.read(path)


@pytest.mark.parametrize("raw", [NESTED, ENDLESS, b"{}", b"null", b"\xff"])
def test_json_that_is_not_ours_is_refused_by_name(tmp_path: Path, raw: bytes) -> None:
    """A manifest, a rehearsal's mark, a bookie's answer: nested beyond measure, endless, or of another shape."""
    (tmp_path / MANIFEST).write_bytes(raw)
    with pytest.raises(DatasetError):
        open_dataset(tmp_path, "plan")
    store = MemoryStore()
    store.write([Write("/r" + rehearse.MARK, raw)])
    assert rehearse.read_mark(store, "/r") is None
    if raw not in (b"{}", ENDLESS):
        with pytest.raises(ValueError, match=r"answered|Expecting|decode"):
            gc_settings.parse_answer("/api", raw)


@pytest.mark.parametrize("field", ["binding", "coverage", "hash", "counts", "reasons", "tables"])
@pytest.mark.parametrize("value", [None, 7, "text", ["list"]])
def test_a_manifest_that_lacks_what_readers_need_is_refused(tmp_path: Path, field: str, value: object) -> None:
    """A field that is gone or of another shape is told when the dataset is opened, not where it is first used."""
    write_plan(tmp_path / "plan", [Ledger(5, [(0, ["b1", "b2", "b3"])])])
    path = tmp_path / "plan" / MANIFEST
    whole = json.loads(path.read_bytes())
    if field == "hash" and isinstance(value, str):
        return
    path.write_text(json.dumps({**whole, field: value}))
    with pytest.raises(DatasetError, match="not a manifest of ours"):
        open_dataset(tmp_path / "plan", "plan")
    del whole[field]
    path.write_text(json.dumps(whole))
    with pytest.raises(DatasetError, match="not a manifest of ours"):
        open_dataset(tmp_path / "plan", "plan")


def test_a_snapshot_of_zookeeper_that_ends_before_its_last_slash_is_cut(tmp_path: Path) -> None:
    """Cut behind the length of the name that ends the nodes: the same as cut anywhere else."""
    image = (DATA / "zookeeper" / "v39-plain" / "version-2" / "snapshot.28").read_bytes()
    end = image.index(b"\0\0\0\x01/")
    damage = []
    for cut in (end, end + 4):
        (tmp_path / "snapshot.28").write_bytes(image[:cut])
        damage.append(snapshot.read(tmp_path / "snapshot.28").damage)
    assert damage[0] == damage[1]
    assert damage[0] is not None


def test_a_line_of_a_journal_that_says_nothing_is_refused(tmp_path: Path) -> None:
    """Right hashes around nested or endless JSON: the line is not one of ours."""
    path = tmp_path / audit_journal.JOURNAL
    for body in (NESTED + b"}", ENDLESS):
        path.write_bytes(body[:-1] + b',"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n')
        with pytest.raises(JournalError, match="altered"):
            list(audit_journal.scan(path))


def test_the_journal_of_another_command_is_refused_by_name(tmp_path: Path) -> None:
    """Lines that lack what a reader needs are one error that names the file, for each command that reads journals."""
    path = tmp_path / audit_journal.JOURNAL
    begin = {"event": "begin", "binding": freeze.make_binding("/ledgers"), "by": {}}
    path.write_bytes(_bound(begin, {"event": "intent", "of": "freeze", "op": "rights", "key": "/"}))
    with pytest.raises(JournalError, match="not written by this command"):
        undo.propose(tmp_path, MemoryStore(), "/ledgers")
    with pytest.raises(JournalError, match="not written by this command"):
        freeze.read_history(tmp_path, "/ledgers")
    path.write_bytes(_bound(begin, {"event": "done", "batch": 0, "versions": 7}))
    with pytest.raises(JournalError, match="not written by this command"):
        read_journal(path, ())
