"""Disks that somebody states to be gone: whose absence hides nothing any more, and what is restored then."""

import pyarrow as pa
import pytest

from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk, find_lost_bookies, list_bounded, list_explained
from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.reconstruct import InferOptions
from recovery.infer.refusal import Refusal
from recovery.model import tables
from tests.recovery.infer.test_reconstruct import NAMES, SECRET, damage, header, recover, row, striped
from tests.simulation import simulator

LOST = InferOptions(passwords=SECRET.passwords, lost_bookies=("c:3181",))
STRIPED = Prior.build(ShapeCounts(), {(3, 2, 1): 9})


def bookies(**missing: list[str]) -> pa.Table:
    """Return the first two bookies, with folders l1 and l2; `missing`: those that are not complete."""
    rows = simulator.bookies(NAMES[:2]).to_pylist()
    for one in rows:
        gone = missing.get(one["bookie"][0], [])
        kinds = [("/d/l1/current", "ledger"), ("/d/l2/current", "ledger"), ("/d/j", "journal")]
        one["dirs"] = [
            {"path": path, "role": role, "complete": path not in gone, "bytes": 0, "unread": 0} for path, role in kinds
        ]
        one["complete"] = not gone
    return pa.Table.from_pylist(rows, schema=tables.BOOKIES)


def test_a_statement_is_a_bookie_or_a_folder_of_it() -> None:
    """As they are typed, and as they are recorded."""
    assert LostDisk.parse("bk1:3181") == LostDisk("bk1:3181")
    assert LostDisk.parse("bk1:3181=/d/l1/") == LostDisk("bk1:3181", "/d/l1")
    assert [str(LostDisk.parse(text)) for text in ("bk1:3181", "bk1:3181=/d/l1")] == ["bk1:3181", "bk1:3181=/d/l1"]


def test_a_bookie_is_lost_as_far_as_nothing_else_of_it_is_missing() -> None:
    """One of two missing folders is not all; damage elsewhere hides as before; `current` may be left out."""
    none = tables.DAMAGE.empty_table()

    def lost(*stated: str, found: pa.Table, harm: pa.Table = none) -> tuple[str, ...]:
        return find_lost_bookies([LostDisk.parse(text) for text in stated], found, harm, ["z:3181"])

    one, both = bookies(a=["/d/l1/current"]), bookies(a=["/d/l1/current", "/d/l2/current"])
    assert lost("a:3181=/d/l1", found=one) == ("a:3181",)
    assert lost("a:3181=/d/l1", found=both) == ()
    assert lost("a:3181=/d/l1", "a:3181=/d/l2", found=both) == ("a:3181",)
    assert lost("a:3181", found=both) == ("a:3181",)
    assert lost("z:3181", found=one) == ("z:3181",)
    assert lost("a:3181=/d/l1", found=one, harm=damage(file="/d/l1/current/0.log")) == ("a:3181",)
    assert lost("a:3181=/d/l1", found=one, harm=damage(file="/d/l1", reason="missing")) == ("a:3181",)
    assert lost("a:3181=/d/l1", found=one, harm=damage(file="/d/l2/current/0.log")) == ()


@pytest.mark.parametrize(
    ("stated", "problem"),
    [("z:3181=/d/l1", "nothing of it was collected"), ("b:3181", "was read whole"), ("b:3181=/d/l1", "read whole")],
)
def test_more_than_is_lost_is_never_given_up(stated: str, problem: str) -> None:
    """A folder of a bookie that nobody collected says nothing of its others; of one read whole none is gone."""
    found = bookies(a=["/d/l1/current"])
    with pytest.raises(InputError, match=problem):
        find_lost_bookies([LostDisk.parse(stated)], found, tables.DAMAGE.empty_table(), ["z:3181"])


def test_places_in_a_lost_log_are_lost_with_it() -> None:
    """An index on a disk that is there names logs that were on the lost one; any other damage there hides as before."""
    found = bookies(a=["/d/l1/current"]).to_pylist()
    found[0]["dirs"].append({"path": "/d/l2/current", "role": "index", "complete": False, "bytes": 0, "unread": 0})
    table = pa.Table.from_pylist(found, schema=tables.BOOKIES)
    dangling = damage(file="/d/l2/current/0/1/1.idx", reason="dangling", ledger=1)
    torn = damage(file="/d/l2/current/0/2/2.idx", reason="truncated", ledger=2)
    stated = [LostDisk("a:3181", "/d/l1")]
    assert find_lost_bookies(stated, table, dangling, []) == ("a:3181",)
    assert find_lost_bookies(stated, table, pa.concat_tables([dangling, torn]), []) == ()
    assert find_lost_bookies(stated, table, torn, []) == ()


@pytest.mark.parametrize("stated", ["y:3181", "a:3181=/d/l2", "b:3181=/d/l1"])
def test_what_is_not_missing_cannot_be_lost(stated: str) -> None:
    """A bookie that nobody knows, and a folder that was read: a slip that would give data up."""
    with pytest.raises(InputError):
        find_lost_bookies(
            [LostDisk.parse(stated)], bookies(a=["/d/l1/current"]), tables.DAMAGE.empty_table(), ["z:3181"]
        )


L1, L2, L3 = (f"/d/l{number}/current" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("missing", "harms", "stated", "is_seen"),
    [
        ([(L1, "ledger")], [], ["/d/l1"], True),
        ([(L1, "ledger"), (L2, "ledger")], [], ["/d/l1"], False),
        ([(L1, "ledger"), (L2, "index")], [], ["/d/l1"], False),
        # Damage inside of what is lost is lost with it, of whichever folder that is.
        ([(L1, "ledger")], [(f"{L1}/0.log", "zeros")], ["/d/l1"], True),
        ([(L1, "ledger"), (L2, "ledger")], [(f"{L1}/0.log", "zeros")], ["/d/l1", "/d/l2"], True),
        ([(L1, "ledger")], [(f"{L2}/0.log", "zeros")], ["/d/l1"], False),
        # Places in logs that are gone: an index has them, whose logs were in the lost folder.
        ([(L1, "ledger")], [(f"{L2}/1.idx", "dangling")], ["/d/l1"], True),
        ([(L1, "index")], [(f"{L2}/1.idx", "dangling")], ["/d/l1"], False),
        ([(L1, "ledger"), (L2, "index")], [(f"{L2}/1.idx", "dangling")], ["/d/l1"], True),
        ([(L1, "ledger"), (L2, "index")], [(f"{L3}/1.idx", "dangling")], ["/d/l1"], False),
        ([(L1, "ledger"), (L2, "ledger")], [(f"{L2}/1.idx", "dangling")], ["/d/l1"], False),
        ([(L1, "ledger"), (L2, "journal")], [(f"{L2}/1.idx", "dangling")], ["/d/l1"], False),
        (
            [(L1, "ledger"), (L2, "index"), (L3, "index")],
            [(f"{L2}/1.idx", "dangling"), (f"{L3}/1.idx", "dangling")],
            ["/d/l1"],
            True,
        ),
        ([(L1, "ledger"), (L2, "index")], [(f"{L2}/1.idx", "zeros")], ["/d/l1"], False),
    ],
)
def test_what_is_missing_beside_a_lost_folder(
    missing: list[tuple[str, str]], harms: list[tuple[str, str]], stated: list[str], *, is_seen: bool
) -> None:
    """Nothing else, or what was in it: then nothing of the bookie can come back."""
    [found] = simulator.bookies(["a:3181"]).to_pylist()
    found["complete"] = False
    found["dirs"] = [
        {"path": path, "role": role, "complete": is_whole, "bytes": 0, "unread": 0}
        for path, role, is_whole in [*((*one, False) for one in missing), ("/d/j", "journal", True)]
    ]
    rows = [damage(bookie="a:3181", file=file, reason=reason) for file, reason in harms]
    harm = pa.concat_tables([tables.DAMAGE.empty_table(), *rows])
    disks = [LostDisk("a:3181", folder) for folder in stated]
    table = pa.Table.from_pylist([found], schema=tables.BOOKIES)
    assert find_lost_bookies(disks, table, harm, []) == (("a:3181",) if is_seen else ())


def test_a_bookie_whose_damage_hides_entries_can_be_lost_though_it_was_read_whole() -> None:
    """One without any is not; nor is one whose damage hides none."""
    stated, found = [LostDisk("a:3181")], bookies()
    assert find_lost_bookies(stated, found, damage(file="/d/l1/current/0.log"), []) == ("a:3181",)
    with pytest.raises(InputError, match="was read whole"):
        find_lost_bookies(stated, found, damage(file="/d/l1/current/0.log", hides_entries=False), [])


@pytest.mark.parametrize(
    ("gone", "files", "explained"),
    [
        ([L1], [f"{L1}/0.log"], True),
        ([L1], [L1], True),
        ([L1], [f"{L1}/0.log", "/d/j/1.txn"], True),
        ([L1], [f"{L2}/0.log"], False),
        ([L1], [], False),
        ([L1, L2], [f"{L1}/0.log"], False),
        ([L1, L2], [f"{L1}/0.log", f"{L2}/0.log"], True),
        ([], [f"{L1}/0.log"], False),
    ],
)
def test_each_folder_that_was_not_read_whole_needs_damage_of_its_own(
    gone: list[str], files: list[str], *, explained: bool
) -> None:
    """Those that were need none; of a bookie that was read whole nothing is to be explained."""
    harm = pa.concat_tables([tables.DAMAGE.empty_table(), *(damage(file=file) for file in files)])
    assert list_explained(bookies(a=gone), harm) == ["a:3181"] * explained
    assert list_bounded(bookies(a=gone), harm) == []
    named = pa.concat_tables([tables.DAMAGE.empty_table(), *(damage(file=file, ledger=7) for file in files)])
    assert list_bounded(bookies(a=gone), named) == ["a:3181"] * explained


def test_positions_that_stripes_show_are_named_with_the_lost_bookie() -> None:
    """A 3/2 ledger whose third bookie is gone comes back, without a guard, with its copies missing and it as member."""
    rows = striped(30)[:2]
    assert recover(rows, prior=STRIPED, options=InferOptions(unscanned_bookies=("c:3181",)))["outcome"] == "guarded"
    found = recover(rows, prior=STRIPED, options=LOST, names=NAMES[:2])
    assert (found["outcome"], found["last_entry"], found["missing"]) == ("restored", 29, 20)
    assert found["segments"][0]["members"] == ["a:3181", "b:3181", "c:3181"]
    assert found["segments"][0]["assumed"] == [False, False, True]


def test_an_entry_that_only_the_lost_bookie_had_is_listed() -> None:
    """Of 3/1 stripes every third entry is gone; the others are readable around them."""
    prior = Prior.build(ShapeCounts(), {(3, 1, 1): 9})
    found = recover(striped(30, write=1)[:2], prior=prior, options=LOST, names=NAMES[:2])
    assert (found["outcome"], found["last_entry"]) == ("restored", 28)
    assert found["holes"] == [{"first": 2, "last": 26, "size": 1, "period": 3}]


def test_a_ledger_that_a_lac_shows_to_be_longer_ends_at_what_is_left() -> None:
    """With the loss stated it comes back, and says for what reason it may be short; else it is guarded."""
    rows = [r | {"explicit_lac": 40} for r in striped(30)[:2]]
    found = recover(rows, prior=STRIPED, options=LOST, names=NAMES[:2])
    assert (found["outcome"], found["last_entry"], found["lac_low"]) == ("restored", 29, 40)
    assert (found["reason"], found["acked_high"]) == (Refusal.LAC_BEYOND_END, None)


def test_what_else_is_missing_still_hides() -> None:
    """One bookie lost, another not looked at: guarded as before. Two keys: held, whatever is lost."""
    options = InferOptions(passwords=SECRET.passwords, lost_bookies=("c:3181",), unscanned_bookies=("d:3181",))
    assert recover(striped(30)[:2], prior=STRIPED, options=options, names=NAMES[:2])["outcome"] == "guarded"
    two = [row("a:3181", range(9)), row("b:3181", range(9), key=b"x" * 32, headers=[header(8)])]
    assert recover(two, options=LOST, names=NAMES[:2])["reason"] == Refusal.TWO_KEYS


def test_damage_of_a_lost_disk_hides_nothing() -> None:
    """A torn log of a bookie that is stated to be lost is no reason to wait for it."""
    rows = striped(30)[1:]
    harm = damage(ledger=7, scope=0)
    assert recover(rows, prior=STRIPED, harm=harm, names=NAMES[:3])["outcome"] == "guarded"
    options = InferOptions(passwords=SECRET.passwords, lost_bookies=("a:3181",))
    assert recover(rows, prior=STRIPED, harm=harm, options=options, names=NAMES[:3])["outcome"] == "restored"
