"""What somebody states of the quorums of some ledgers: read, matched, and taken."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.knowledge import MOST_LINES, Knowledge, StatedQuorums
from recovery.errors import InputError
from recovery.infer.prior import Prior, ShapeCounts, ShapeSource
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model import tables
from tests.simulation import simulator


def read(tmp_path: Path, text: str) -> StatedQuorums:
    """Read a file with this text."""
    file = tmp_path / "quorums"
    file.write_text(text)
    return StatedQuorums.read(file)


def test_the_first_line_that_a_ledger_fits_counts(tmp_path: Path) -> None:
    """By range, by one id, by an owner or the beginning of his name; others, and other scopes, have none."""
    lines = ["# as configured", "", "7 5/3/2", "0..9 3/2/2   # the first day", "owner=audit 4/4/3", "owner=app* 3/2/2"]
    stated = read(tmp_path, "\n".join(lines))
    keys = pa.table({"scope": [0, 0, 0, 0, 0, 1], "ledger": [7, 9, 20, 21, 22, 7]})
    owners = ["app/one", "audit", None]
    references = pa.table({"scope": [0, 0, 0], "ledger": [20, 21, 22], "owner": pa.array(owners)})
    found = {quorum: np.flatnonzero(mask).tolist() for quorum, mask in stated.split(keys, references)}
    assert found == {(5, 3, 2): [0], (3, 2, 2): [1, 2], (4, 4, 3): [3], None: [4, 5]}
    assert stated.names_owners
    assert [str(one) for one in stated.statements][:3] == ["7..7 5/3/2", "0..9 3/2/2", "owner=audit 4/4/3"]
    assert {quorum: mask.sum() for quorum, mask in StatedQuorums().split(keys, None)} == {None: 6}


@pytest.mark.parametrize(
    "line", ["7", "7 3/2", "9..7 3/2/2", "7 2/3/2", "7 3/2/0", "-1 3/2/2", "owner= 3/2/2", "0:7 3/2/2"]
)
def test_a_line_that_is_none_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    """A slip must not be taken for another ledger's quorums."""
    with pytest.raises(InputError, match="line 2"):
        read(tmp_path, f"1 3/2/2\n{line}\n")


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    """None there, no text, nothing stated, or too many lines."""
    with pytest.raises(InputError):
        StatedQuorums.read(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError):
        StatedQuorums.read(tmp_path / "bytes")
    with pytest.raises(InputError, match="states nothing"):
        read(tmp_path, "# 7 3/2/2\n\n")
    with pytest.raises(InputError, match="more than"):
        read(tmp_path, "".join(f"{n} 3/2/2\n" for n in range(MOST_LINES + 1)))


def test_what_is_stated_is_taken_where_copies_are_silent() -> None:
    """A ledger of one entry on two bookies of six: 2/2 by the cluster's others, 5/2 and A = 1 as it is stated."""
    cluster = simulator.Cluster(shapes=((5, 2),), bookies=6, lengths=(1,), changes=(0,))
    copies = simulator.copies([simulator.history(Random(3), 1, cluster)])
    bookies = simulator.bookies(list(cluster.names))
    usual = Prior.build(ShapeCounts(), {(2, 2, 2): 9})
    options = InferOptions(passwords=(b"", simulator.PASSWORD))

    def shape(prior: Prior) -> tuple[int, int, int]:
        [row] = reconstruct(copies, bookies, tables.DAMAGE.empty_table(), prior, options).to_pylist()
        return row["ensemble_size"], row["write_quorum"], row["ack_quorum"]

    assert shape(usual) == (2, 2, 2)
    stated = usual.with_stated((5, 2, 1))
    assert [one.source for one in stated.shapes] == [ShapeSource.DEFAULT_QUORUM]
    assert shape(stated) == (5, 2, 1)


def test_a_range_of_one_and_an_ack_quorum_of_one_are_statements(tmp_path: Path) -> None:
    """As many lines as are read are read."""
    assert [str(one) for one in read(tmp_path, "7..7 3/3/1\n").statements] == ["7..7 3/3/1"]
    assert len(read(tmp_path, "".join(f"{n} 3/2/2\n" for n in range(MOST_LINES))).statements) == MOST_LINES


def test_owners_are_known_by_references_alone(tmp_path: Path) -> None:
    """Without these a file that names some is refused; one that does not is read, and none states nothing."""
    file = tmp_path / "owners"
    file.write_text("owner=audit 4/4/3\n")
    assert StatedQuorums.read_for(file, has_references=True).names_owners
    with pytest.raises(InputError, match="names owners"):
        StatedQuorums.read_for(file, has_references=False)
    file.write_text("7 4/4/3\n")
    assert len(StatedQuorums.read_for(file, has_references=False).statements) == 1
    assert StatedQuorums.read_for(None, has_references=False) == StatedQuorums()


def test_an_owner_is_named_whole_unless_it_ends_in_a_star(tmp_path: Path) -> None:
    """The last letter of a name is part of it."""
    stated = read(tmp_path, "owner=audit 4/4/3\n")
    keys = pa.table({"scope": [0, 0], "ledger": [1, 2]})
    references = pa.table({"scope": [0, 0], "ledger": [1, 2], "owner": ["audi", "audit"]})
    assert {q: np.flatnonzero(mask).tolist() for q, mask in stated.split(keys, references)} == {
        None: [0],
        (4, 4, 3): [1],
    }


def test_passwords_are_not_in_what_a_log_may_show() -> None:
    """Neither of what the operator knows, nor of what a run goes by."""
    for known in (Knowledge(passwords=(b"hunter2",)), InferOptions(passwords=(b"hunter2",))):
        assert "hunter2" not in repr(known)
