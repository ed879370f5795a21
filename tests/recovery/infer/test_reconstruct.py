"""Reconstruction, rule by rule: what is proposed, with which grade, and why a ledger is held."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.codecs.entry import encode_lac_record, master_key
from recovery.infer.prior import Prior, ShapeCounts, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import Digest
from tests.simulation import simulator
from tests.simulation.simulator import copy_row

NAMES: Final = ("a:3181", "b:3181", "c:3181", "d:3181", "e:3181")
KNOWN: Final = Prior.build(ShapeCounts(), {(3, 3, 2): 10, (3, 2, 2): 5, (1, 1, 1): 1})
SECRET: Final = InferOptions(passwords=(b"", simulator.PASSWORD))

Row = dict[str, Any]


def header(entry: int, **others: object) -> Row:
    """Return one header as an ordinary writer leaves it, ten bytes an entry; other fields as given."""
    made = {"entry": entry, "lac": entry - 1, "length": 10 * (entry + 1), "size": 46, "digest": "CRC32C"}
    return made | others


def row(bookie: str, entries: Iterable[int], **others: object) -> Row:
    """Return a copy of ledger 7 whose last entry's header was read; other columns as given."""
    own = sorted(entries)
    return copy_row(7, bookie, own, **({"headers": [header(own[-1])] if own else []} | others))


def striped(entries: int, size: int = 3, write: int = 2) -> list[Row]:
    """Return the copies of an unharmed ledger."""
    held = [[e for e in range(entries) if simulator.holds(p, e, size, write)] for p in range(size)]
    return [row(bookie, own) for bookie, own in zip(NAMES, held, strict=False)]


def full(copies: int = 3, entries: int = 20, **others: object) -> list[Row]:
    """Return full copies on the first bookies."""
    return [row(bookie, range(entries), **others) for bookie in NAMES[:copies]]


def damage(**fields: object) -> pa.Table:
    """Return one row of damage on the first bookie."""
    made = {"bookie": NAMES[0], "incarnation": 1, "file": "0.log", "reason": "zeros", "hides_entries": True}
    return pa.Table.from_pylist([made | fields], schema=tables.DAMAGE)


def recover(
    rows: list[Row],
    *,
    prior: Prior = KNOWN,
    options: InferOptions = SECRET,
    harm: pa.Table | None = None,
    names: Iterable[str] = NAMES,
    states: Mapping[str, object] | None = None,
) -> Row:
    """Reconstruct the one ledger of some rows; `states`: columns that all bookies have."""
    bookies = simulator.bookies(names).to_pylist()
    table = pa.Table.from_pylist([bookie | dict(states or {}) for bookie in bookies], schema=tables.BOOKIES)
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    harm = tables.DAMAGE.empty_table() if harm is None else harm
    (found,) = reconstruct(copies, table, harm, prior, options).to_pylist()
    return dict(found)


def test_a_striped_ledger_shows_all_but_its_ack_quorum() -> None:
    """E, W and placement are observed; A is the snapshot's; the end is inferred, digest and password verified."""
    found = recover(striped(30), names=NAMES[:4])
    assert (found["ensemble_size"], found["write_quorum"], found["ack_quorum"]) == (3, 2, 2)
    assert (found["class"], found["outcome"], found["reason"]) == ("clean", "restored", None)
    assert (found["state"], found["last_entry"], found["length"], found["format"]) == ("CLOSED", 29, 300, 3)
    assert found["segments"] == [{"first": 0, "first_low": 0, "members": list(NAMES[:3]), "assumed": [False] * 3}]
    grades = found["grades"]
    assert {grades[field] for field in ("ensemble_size", "write_quorum")} == {"observed"}
    assert {grades[field] for field in ("ack_quorum", "last_entry", "length", "segments")} == {"inferred"}
    assert grades["state"] == "assumed"
    assert (grades["digest"], grades["password"]) == ("verified", "verified")
    assert (grades["ctime"], grades["custom"]) == ("unknown", "unknown")
    assert (found["lac_low"], found["acked_high"], found["missing"], found["extra"]) == (28, 29, 0, 0)
    assert [(a["field"], a["value"]) for a in found["alternatives"]] == [("last_entry", "27..28")]
    assert found["holders"] == list(NAMES[:3])
    assert found["key"] == hashlib.sha256(master_key(simulator.PASSWORD)).digest()


def test_full_copies_are_never_called_observed() -> None:
    """Three full copies are a 3/3 ledger if the prior supports it: inferred."""
    found = recover(full())
    assert (found["ensemble_size"], found["write_quorum"], found["ack_quorum"]) == (3, 3, 2)
    assert found["grades"]["ensemble_size"] == found["grades"]["segments"] == "inferred"


def test_what_else_would_fit_is_listed() -> None:
    """One entry on two bookies may be 2/2, 3/2 or 4/2: the heaviest is proposed, the others are alternatives."""
    prior = Prior.build(ShapeCounts(), {(3, 2, 2): 6, (2, 2, 1): 3, (4, 2, 1): 1})
    found = recover([row(bookie, [0]) for bookie in NAMES[:2]], prior=prior)
    assert (found["ensemble_size"], found["write_quorum"]) == (3, 2)
    assert [(a["field"], a["value"], a["weight"]) for a in found["alternatives"]] == [
        ("ensemble_size/write_quorum", "2/2", 0.3),
        ("ensemble_size/write_quorum", "4/2", 0.1),
        ("last_entry", "-1", 0.0),
    ]
    assert found["segments"][0]["assumed"] == [False, False, True]


def test_where_nothing_was_acknowledged_fewer_copies_may_have_been_wanted() -> None:
    """All may have been sent to one bookie after another, each of which failed; a LAC shows that some answered."""

    def list_others(lac: int) -> list[str]:
        found = recover(full(3, headers=[header(19, lac=lac)]))
        assert found["outcome"] == "restored"
        return [other["value"] for other in found["alternatives"] if other["field"] == "ensemble_size/write_quorum"]

    assert "1/1" in list_others(-1)
    assert "1/1" not in list_others(0)


def test_fewer_changes_go_before_a_heavier_shape() -> None:
    """What one ensemble explains is not explained by a change, however common the other shape is."""
    prior = Prior.build(ShapeCounts(), {(2, 2, 2): 9, (3, 2, 2): 1})
    found = recover([row("a:3181", [0]), row("b:3181", [0, 1]), row("c:3181", [1])], prior=prior)
    assert (found["ensemble_size"], len(found["segments"])) == (3, 1)


def test_positions_without_an_entry_go_to_who_knows_the_ledger() -> None:
    """First to bookies that know it and hold nothing, then to any that are not in the ensemble, always the same."""
    prior = Prior.build(ShapeCounts(), {(5, 2, 2): 1})
    rows = [row("a:3181", [0]), row("c:3181", [0]), row("e:3181", [])]
    found = recover(rows, prior=prior)
    (segment,) = found["segments"]
    assert segment["members"][:3] == ["a:3181", "c:3181", "e:3181"]
    assert sorted(segment["members"]) == list(NAMES)
    assert segment["assumed"] == [False, False, True, True, True]
    assert recover(rows[::-1], prior=prior) == found
    assert found["holders"] == ["a:3181", "c:3181"]
    assert recover(rows, prior=prior, names=NAMES[:4])["reason"] is None
    unseen = recover(rows[:2], prior=prior, names=NAMES[:4], options=InferOptions(unscanned_bookies=("z:3181",)))
    assert unseen["segments"][0]["members"][2:].count("z:3181") == 1


def test_a_takeover_is_dated_as_far_as_it_shows() -> None:
    """A newcomer's first entry bounds the change from above, its position's gap from below; the overhang is counted."""
    held = [
        [e for e in range(60) if simulator.holds(0, e, 3, 2)],
        [e for e in range(26) if simulator.holds(1, e, 3, 2)],
        [e for e in range(60) if simulator.holds(2, e, 3, 2)],
        [e for e in range(22, 60) if simulator.holds(1, e, 3, 2)],
    ]
    found = recover([row(bookie, own) for bookie, own in zip(NAMES, held, strict=False)])
    first, second = found["segments"]
    assert first["members"] == ["a:3181", "b:3181", "c:3181"]
    assert second == {"first": 22, "first_low": 22, "members": ["a:3181", "d:3181", "c:3181"], "assumed": [False] * 3}
    assert found["extra"] == len([e for e in range(22, 26) if simulator.holds(1, e, 3, 2)])
    held[3] = [e for e in range(23, 60) if simulator.holds(1, e, 3, 2)]
    held[1] = [e for e in range(23) if simulator.holds(1, e, 3, 2)]
    found = recover([row(bookie, own) for bookie, own in zip(NAMES, held, strict=False)])
    assert (found["segments"][1]["first"], found["segments"][1]["first_low"]) == (24, 23)


def test_an_end_below_a_lac_is_listed_where_a_member_lost_its_entries() -> None:
    """A recovery that this member answers, and nobody who has the LAC, closes the ledger before what it had.

    Of 3/2 the second member has nothing left; another one was away then, with a LAC of 2. Where all members have
    theirs, but one knows of no LAC, that one may have been replaced; where all know of 2, this bounds the end.
    """
    here = row("a:3181", [0, 2, 3], headers=[header(3)])
    other = row("c:3181", [1, 2], headers=[header(2, lac=-1)])
    names = [*NAMES, "f:3181"]
    lost = recover([here, other], prior=Prior.build(ShapeCounts(), {(3, 2, 2): 5}), names=names)
    whole = recover([here, row("b:3181", [0, 1, 3]), other], prior=Prior.build(ShapeCounts(), {(3, 2, 2): 5}))

    def list_ends(found: Row) -> list[str]:
        return [other["value"] for other in found["alternatives"] if other["field"] == "last_entry"]

    assert (lost["outcome"], lost["last_entry"], lost["lac_low"]) == ("restored", 3, 2)
    assert list_ends(lost) == ["-1..2"]
    assert list_ends(whole) == ["-1..2"]
    known = row("c:3181", [1, 2], headers=[header(2, lac=1)])
    whole = recover([here, row("b:3181", [0, 1, 3]), known], prior=Prior.build(ShapeCounts(), {(3, 2, 2): 5}))
    assert list_ends(whole) == ["1..2"]


def test_a_lac_at_the_end_proves_the_end() -> None:
    """An explicit LAC at the last entry that all members of a seen shape hold makes the end observed, else not.

    Anybody who came after full copies may have lost all that was above; and so may newcomers of whom the members never
    heard, where there are as many other bookies as acknowledge an entry.
    """
    rows = striped(30)
    rows[0]["explicit_lac"] = 29
    seen = recover(rows, names=NAMES[:4])
    assert (seen["grades"]["last_entry"], seen["acked_high"]) == ("observed", 29)
    assert seen["alternatives"] == []
    assert seen["grades"]["state"] == "assumed"
    unsure = recover(rows)
    assert (unsure["grades"]["last_entry"], unsure["acked_high"]) == ("inferred", None)
    ack_1 = Prior.build(ShapeCounts(), {(3, 2, 1): 5})
    assert recover(rows, names=NAMES[:4], prior=ack_1)["grades"]["last_entry"] == "inferred"
    assert recover(rows, names=NAMES[:3], prior=ack_1)["grades"]["last_entry"] == "observed"
    found = recover([*full(2), row(NAMES[2], range(20), explicit_lac=19)])
    assert (found["outcome"], found["grades"]["last_entry"], found["acked_high"]) == ("restored", "inferred", None)
    rows[0]["complete"] = rows[1]["complete"] = False
    found = recover(rows, prior=Prior.build(ShapeCounts()))
    assert (found["outcome"], found["grades"]["last_entry"], found["acked_high"]) == ("restored", "inferred", None)


@pytest.mark.parametrize("unseen", [1, ("z:3181",)])
def test_bookies_that_were_not_scanned_leave_the_end_open(unseen: int | tuple[str, ...]) -> None:
    """With A = 2 one unseen bookie cannot hide an acknowledged entry of a seen shape; of an inferred one it can.

    Where nobody stands for A, what misses copies that it may have is held.
    """
    options = InferOptions(passwords=SECRET.passwords, unscanned_bookies=unseen)
    assert recover(striped(30), options=options, names=NAMES[:3])["acked_high"] == 29
    assert recover(striped(30), options=options, names=NAMES[:4])["acked_high"] is None
    assert recover(full(), options=options, names=NAMES[:3])["acked_high"] is None
    found = recover(striped(30)[:2], options=options)
    assert (found["outcome"], found["missing"], found["last_entry"]) == ("restored", 20, 29)
    assert found["segments"][0]["assumed"] == [False, False, True]
    nobody = Prior.build(ShapeCounts(striped={(3, 2): 9}))
    assert recover(striped(30)[:2], options=options, prior=nobody)["reason"] == Refusal.SOURCE_INCOMPLETE
    assert recover(striped(30)[:2], prior=nobody)["outcome"] == "restored"


@pytest.mark.parametrize(("unseen", "outcome"), [(1, "restored"), (2, "guarded"), (("y:3181", "z:3181"), "guarded")])
def test_a_later_segment_may_stand_on_as_many_unseen_bookies_as_have_an_entry(
    unseen: int | tuple[str, ...], outcome: str
) -> None:
    """All of 3/2 is whole; two bookies nobody looked at may have the next ensemble, which names them to no other."""
    options = InferOptions(passwords=SECRET.passwords, unscanned_bookies=unseen)
    found = recover(striped(30), options=options, names=NAMES[:3])
    assert (found["outcome"], found["reading"]) == (outcome, "proved" if outcome == "restored" else "likeliest")
    assert (found["last_entry"], len(found["segments"])) == (29, 1)


@pytest.mark.parametrize(("beside", "outcome"), [(0, "restored"), (1, "restored"), (2, "guarded")])
def test_who_was_asked_for_a_ledger_alone_hides_nothing_of_it(beside: int, outcome: str) -> None:
    """As by the wire: no bookie is seen whole, and of the ledger each answers for itself; others may have more."""
    found = recover(striped(30), names=NAMES[: 3 + beside], states={"complete": False, "mode": "wire"})
    assert (found["outcome"], found["last_entry"]) == (outcome, 29)


@pytest.mark.parametrize(
    ("default", "copies", "wanted"),
    [
        (None, 2, None),
        (None, 3, None),
        ((3, 3, 2), 2, (3, 3, ["a:3181", "b:3181", "z:3181"])),
        ((3, 3, 2), 3, (3, 3, ["a:3181", "b:3181", "c:3181"])),
        ((2, 2, 2), 2, (2, 2, ["a:3181", "b:3181"])),
        ((3, 2, 2), 2, None),
        ((3, 2, 2), 3, None),
        ((4, 4, 2), 2, None),
    ],
)
def test_full_copies_are_a_lower_bound_where_a_bookie_was_not_scanned(
    default: tuple[int, int, int] | None, copies: int, wanted: tuple[int, int, list[str]] | None
) -> None:
    """Ledgers of full copies are restored as the operator says, with the unseen bookie if one is missing, or held."""
    prior = Prior.build(ShapeCounts(full={2: 50, 3: 50}), None, default, unscanned=["z:3181"])
    options = InferOptions(passwords=SECRET.passwords, unscanned_bookies=("z:3181",))
    found = recover(full(copies), options=options, prior=prior)
    if wanted is None:
        assert found["reason"] == Refusal.SOURCE_INCOMPLETE
        return
    assert (found["ensemble_size"], found["write_quorum"]) == wanted[:2]
    assert [sorted(segment["members"]) for segment in found["segments"]] == [wanted[2]]
    assert found["grades"]["write_quorum"] in ("inferred", "assumed")


@pytest.mark.parametrize("default", [None, (3, 3, 2)])
def test_a_wiped_bookie_denies_nothing(default: tuple[int, int, int] | None) -> None:
    """An entry on one of three members, another wiped, the third unreachable: readable, not closed below that entry."""
    prior = Prior.build(ShapeCounts(full={3: 50}), None, default, unscanned=["z:3181"])
    options = InferOptions(passwords=SECRET.passwords, unscanned_bookies=("z:3181",))
    found = recover([row("a:3181", range(10))], names=NAMES[:2], options=options, prior=prior)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.SOURCE_INCOMPLETE)
    assert (found["holders"], found["last_entry"], found["acked_high"]) == (["a:3181"], 9, None)
    both = [row("a:3181", range(10)), row("z:3181", range(9))]
    seen = recover(both, names=("a:3181", "b:3181", "z:3181"), prior=prior)
    assert (seen["outcome"], seen["last_entry"]) == ("restored", 9)


def test_an_unknown_password_gives_format_1() -> None:
    """Without the password there is no secret to store: format 1; the digest is known all the same."""
    found = recover(striped(30), options=InferOptions())
    assert (found["format"], found["digest"], found["grades"]["password"]) == (1, "CRC32C", "unknown")


def test_a_password_stored_as_key_is_the_same_key() -> None:
    """A data-integrity copy that stored the password itself does not make two keys."""
    rows = full()
    rows[1]["key"] = hashlib.sha256(simulator.PASSWORD).digest()
    assert recover(rows)["grades"]["password"] == "verified"
    assert recover(rows, options=InferOptions())["reason"] == Refusal.TWO_KEYS


@pytest.mark.parametrize("kind", ["absent", "zero", "empty"])
def test_an_unset_key_says_nothing(kind: str) -> None:
    """One bookie with the key is enough; without any the ledger is held."""
    rows = full(2, key_kind=kind, key=None)
    assert recover([*rows, row(NAMES[2], range(20))])["format"] == 3
    assert recover([*rows, row(NAMES[2], range(20), key_kind=kind, key=None)])["reason"] == Refusal.NO_KEY


@pytest.mark.parametrize(("width", "digest"), [(20, "HMAC"), (0, "DUMMY")])
def test_the_width_of_an_entry_tells_the_digest(width: int, digest: str) -> None:
    """Where no type verified, the bytes that are neither header nor payload say which it is: inferred."""
    size = 32 + width + 10
    by_pair = [header(18, digest=None, size=size), header(19, digest=None, size=size)]
    by_first = [header(0, digest=None, size=size), header(19, digest=None, size=size)]
    for headers in (by_pair, by_first):
        found = recover([row(bookie, range(20), headers=headers) for bookie in NAMES[:3]])
        assert (found["digest"], found["grades"]["digest"], found["format"]) == (digest, "inferred", 3)


def test_a_width_that_no_password_explains_is_not_believed() -> None:
    """Four bytes that are not the CRC32C: unknown, and so without a password in the record."""
    by_pair = [header(18, digest=None), header(19, digest=None)]
    found = recover([row(bookie, range(20), headers=by_pair) for bookie in NAMES[:3]])
    assert (found["digest"], found["grades"]["digest"], found["format"]) == (None, "unknown", 1)


def test_a_stored_lac_verifies_an_hmac() -> None:
    """The explicit LAC's own HMAC proves the type; one of another password does not."""
    plain = [row(bookie, range(20), headers=[header(19, digest=None)]) for bookie in NAMES[:3]]
    for password, grade in ((simulator.PASSWORD, "verified"), (b"another", "inferred")):
        record = encode_lac_record(7, 12, Digest.HMAC, password)
        rows = [plain[0] | {"explicit_lac": 12, "lac_record": record}, *plain[1:]]
        found = recover(rows)
        assert (found["digest"], found["grades"]["digest"], found["lac_low"]) == ("HMAC", grade, 18)


def test_who_was_replaced_is_told_from_who_deleted() -> None:
    """Logs of a bookie without the ledger: no deletion only where a copy was made for its position, and no other."""
    a, b, own = striped(30)
    copied = [header(1, lac=29), header(29, lac=29)]
    copy = row("d:3181", range(1, 30), headers=copied)
    left = own | {"source": "log", "headers": [header(1, lac=0), header(29)]}
    found = recover([a, b, copy, left])
    assert (found["outcome"], found["segments"][0]["members"]) == ("restored", ["a:3181", "b:3181", "d:3181"])
    maybe = {
        "a copy that may have been made for another position": [a, b, row("d:3181", range(30), headers=copied), left],
        "a copy in logs: the bookie came back": [a, b, copy, left | {"headers": copied}],
        "it came when another one had gone that heard of nothing since": [
            *(r | {"headers": [header(r["last"], lac=-1)]} for r in (a, b)), copy, left,
        ],
        "all copies are alike": [
            *full(2), row("c:3181", range(20), headers=[header(19, lac=19)]), row("d:3181", range(20), source="log"),
        ],
    }  # fmt: skip
    for case, rows in maybe.items():
        assert recover(rows)["reason"] == Refusal.DELETED_SOMEWHERE, case


def test_a_whole_copy_goes_before_the_bookie_that_it_was_made_for() -> None:
    """That bookie came back. Where the copy may have been made for any of several, none is replaced."""
    copied = [header(10, lac=29), header(29, lac=29)]
    came_back, copy = (row(bookie, range(10, 30)) for bookie in ("a:3181", "d:3181"))
    copy |= {"headers": copied}
    moved = recover([row("c:3181", range(10)), came_back, copy], prior=Prior.build(ShapeCounts(), {(1, 1, 1): 1}))
    assert [(s["first"], s["members"]) for s in moved["segments"]] == [(0, ["c:3181"]), (10, ["d:3181"])]
    rows = [row("b:3181", range(30)), row("c:3181", range(10)), came_back, copy]
    either = recover(rows, prior=Prior.build(ShapeCounts(), {(2, 2, 2): 1}))
    assert [(s["first"], s["members"]) for s in either["segments"]] == [
        (0, ["b:3181", "c:3181"]),
        (10, ["b:3181", "a:3181"]),
    ]


def test_what_a_stray_holds_must_stand_elsewhere_too() -> None:
    """A bookie in no segment was replaced before anything was answered, or has another ledger under the same id."""
    both = [header(0), header(19)]
    other = row("d:3181", [0], headers=[header(0)])
    assert recover([*full(headers=both), other])["outcome"] == "restored"
    assert recover([*full(), other])["reason"] == Refusal.TWO_HISTORIES
    assert recover([*full(headers=both), other | {"headers": [header(0, length=9)]}])["reason"] == (
        Refusal.LENGTHS_DIFFER
    )


def test_what_bookies_lost_may_have_been_acknowledged() -> None:
    """A gap ends a ledger only if its members lack nothing before what they hold: half of a 4/2 one looks like 2/2."""
    held = [[0, 1, 4, 5, 8, 9], [0, 3, 4, 7, 8, 11]]
    rows = [row(bookie, own, headers=[header(own[-1], lac=7)]) for bookie, own in zip(NAMES, held, strict=False)]
    told = Prior.build(ShapeCounts(), {(2, 2, 2): 10, (4, 2, 1): 5})
    assert recover(rows, prior=told)["reason"] == Refusal.RAGGED_TAIL


def _changed(rows: list[Row], at: int = 0, **columns: object) -> list[Row]:
    return [r | columns if n == at else r for n, r in enumerate(rows)]


HELD: Final[Mapping[str, tuple[Refusal, list[Row]]]] = {
    "two lengths": (Refusal.LENGTHS_DIFFER, _changed(full(), headers=[header(19, length=1)])),
    "two lengths before the end": (
        Refusal.LENGTHS_DIFFER,
        _changed(full(headers=[header(4), header(19)]), headers=[header(4, length=1), header(19)]),
    ),
    "a length without room for the entry": (
        Refusal.TWO_HISTORIES,
        full(headers=[header(0, length=195), header(19)]),
    ),
    "two digest types": (Refusal.DIGESTS_DIFFER, _changed(full(), headers=[header(19, digest="CRC32")])),
    "two keys": (Refusal.TWO_KEYS, _changed(full(), key=b"x" * 32)),
    "two sets of disks": (Refusal.TWO_INCARNATIONS, [*full(), row(NAMES[0], [], incarnation=2)]),
    "a bookie that deleted it": (Refusal.DELETED_SOMEWHERE, [*full(), row("d:3181", [3], source="log")]),
    "logs only": (Refusal.LOGS_OR_JOURNALS_ONLY, full(source="log")),
    "logs of what an index knows as empty": (
        Refusal.LOGS_OR_JOURNALS_ONLY,
        [row("a:3181", []), row("b:3181", [1], source="log")],
    ),
    "impossible groups": (
        Refusal.CONTRADICTION,
        _changed(full(), groups=[{"first": 5, "last": 4, "size": 1, "period": 0}]),
    ),
    "a header of an entry above all": (Refusal.CONTRADICTION, _changed(full(), headers=[header(20)])),
    "an id that scope 0 has not": (
        Refusal.ID_OUT_OF_RANGE,
        [copy_row(-7, bookie, range(20), headers=[header(19)]) for bookie in NAMES[:3]],
    ),
}
"""What may be of two ledgers, or of one that was deleted."""


@pytest.mark.parametrize("case", HELD)
def test_what_is_not_proved_is_held_with_its_reason(case: str) -> None:
    """Nothing is proposed, no grade claims anything, and the bookies that hold entries are all named."""
    reason, rows = HELD[case]
    found = recover(rows)
    assert (found["class"], found["outcome"], found["reason"]) == ("undecided", "held", reason)
    assert found["reading"] is found["holes"] is None
    assert set(found["grades"].values()) == {"unknown"}
    assert found["segments"] is found["state"] is found["format"] is found["length"] is None
    served = {r["bookie"] for r in rows if r["groups"] and r["source"] != "log"}
    assert set(found["holders"]) == (served or {r["bookie"] for r in rows})


def test_striping_is_not_taken_for_a_change_with_every_entry() -> None:
    """Entries that go round three bookies are not a 1/1 ledger that moved twice, though only 1/1 is supported."""
    prior = Prior.build(ShapeCounts(), {(1, 1, 1): 1})
    rows = [row("a:3181", [0]), row("b:3181", [1]), row("c:3181", [2])]
    found = recover(rows, prior=prior)
    assert (found["ensemble_size"], found["write_quorum"], len(found["segments"])) != (1, 1, 3)
    rows = [row("a:3181", [0, 1]), row("b:3181", [2, 3]), row("c:3181", [4, 5])]
    assert len(recover(rows, prior=prior)["segments"]) == 3


def test_a_bookie_that_comes_back_is_in_two_segments() -> None:
    """With W = E a gap that others filled is a time away; in one that nobody filled, one copy is missing."""
    rows = [row("a:3181", range(30)), row("b:3181", [*range(10), *range(20, 30)]), row("c:3181", range(10, 20))]
    prior = Prior.build(ShapeCounts(), {(2, 2, 2): 1})
    found = recover(rows, prior=prior)
    assert [(s["first"], set(s["members"])) for s in found["segments"]] == [
        (0, {"a:3181", "b:3181"}),
        (10, {"a:3181", "c:3181"}),
        (20, {"a:3181", "b:3181"}),
    ]
    rows[2] = row("c:3181", range(11, 20))
    found = recover(rows, prior=prior)
    assert (found["class"], found["missing"], found["last_entry"]) == ("solved", 1, 29)


def test_a_hole_near_the_end_ends_the_ledger_if_nothing_behind_it_was_acknowledged() -> None:
    """Entry 25 is on nobody, and what is behind it on one: with A = 2 none of it was acknowledged, with 1 maybe all."""
    held = [[e for e in range(end) if simulator.holds(p, e, 3, 2)] for p, end in enumerate((30, 25, 25))]
    rows = [row(bookie, own, headers=[header(own[-1], lac=3)]) for bookie, own in zip(NAMES, held, strict=False)]
    found = recover(rows, prior=replace(KNOWN, kept={0: dict.fromkeys(NAMES, 6)}))
    assert (found["outcome"], found["last_entry"], found["length"]) == ("restored", 24, 250)
    nobody = Prior.build(ShapeCounts(striped={(3, 2): 9}))
    assert recover(rows, prior=nobody)["reason"] == Refusal.RAGGED_TAIL
    rows[0]["headers"] = [header(29)]
    found = recover(rows, prior=nobody)
    assert (found["last_entry"], found["lac_low"], found["missing"]) == (29, 28, 7)


def test_damage_that_names_the_ledger_holds_it() -> None:
    """Only damage that hides entries, and only of this ledger."""
    assert recover(full(), harm=damage(ledger=7, scope=0))["reason"] == Refusal.DAMAGE
    assert recover(full(), harm=damage(ledger=7))["reason"] == Refusal.DAMAGE
    assert recover(full(), harm=damage(ledger=8))["outcome"] == "restored"
    assert recover(full(), harm=damage(ledger=7, scope=1))["outcome"] == "restored"
    assert recover(full(), harm=damage(ledger=7, hides_entries=False))["outcome"] == "restored"


def test_damage_of_a_bookie_matters_where_it_could_hide_an_acknowledged_entry() -> None:
    """It holds what that bookie may have more of, unless a seen shape has an A above one that somebody stands for."""
    assert recover(_changed(full(), complete=False), harm=damage())["reason"] == Refusal.DAMAGE
    assert recover(full(), harm=damage())["outcome"] == "restored"
    assert recover(full(), harm=damage(bookie="e:3181"))["acked_high"] is None
    stripes = _changed(striped(30), complete=False)
    found = recover(stripes, harm=damage(), names=NAMES[:3])
    assert (found["outcome"], found["acked_high"]) == ("restored", 29)
    nobody = Prior.build(ShapeCounts())
    assert recover(stripes, harm=damage(), prior=nobody)["reason"] == Refusal.DAMAGE


def test_a_cleanly_stopped_bookie_has_nothing_in_its_journal_alone() -> None:
    """Journal entries count as held where the bookie was killed, and as leftovers where it was stopped cleanly."""
    rows = [*full(2), row("c:3181", range(20), source="journal")]
    assert recover(rows)["outcome"] == "restored"
    assert recover(rows, states={"dirty": None})["outcome"] == "restored"
    assert recover(rows, states={"dirty": False})["reason"] == Refusal.DELETED_SOMEWHERE


def test_a_ledger_of_very_many_groups_is_left_undecided() -> None:
    """More groups than a task can take: held as fragmented, whatever the rest would say."""
    rows = [row(bookie, [0, 1, 5, 9, 20]) for bookie in NAMES[:3]]
    groups = sum(len(r["groups"]) for r in rows)
    assert recover(rows, options=InferOptions(max_groups=groups - 1))["reason"] == Refusal.FRAGMENTED
    assert recover(rows, options=InferOptions(max_groups=groups))["reason"] != Refusal.FRAGMENTED


def test_a_giant_with_very_many_holes_is_decided() -> None:
    """A thousand million entries, twenty thousand of which one bookie lost, and a bookie that took over half-way."""
    end, lost = 1_000_000_000, 20_000
    step = end // lost
    groups = [{"first": at, "last": at, "size": step - 1, "period": 0} for at in range(0, end, step)]
    last = header(end - 2)
    half = end // 2
    rows = [
        row("a:3181", []) | {"groups": [{"first": 0, "last": 0, "size": end - 1, "period": 0}], "headers": [last]},
        row("b:3181", []) | {"groups": [{"first": 0, "last": 0, "size": half, "period": 0}], "headers": []},
        row("d:3181", [])
        | {"groups": [{"first": half, "last": half, "size": half - 1, "period": 0}], "headers": [last]},
        row("c:3181", []) | {"groups": groups, "headers": [last]},
    ]
    found = recover(rows)
    assert (found["class"], found["outcome"], found["last_entry"]) == ("solved", "restored", end - 2)
    assert (len(found["segments"]), found["segments"][1]["first"], found["missing"]) == (2, half, lost - 1)


def test_parts_of_one_row_are_one_copy() -> None:
    """Groups that did not fit in one row come in parts, and count together."""
    rows = [copy_row(7, r["bookie"], range(10), part=1) | {"headers": r["headers"]} for r in full()]
    rows += [copy_row(7, bookie, range(10, 20)) for bookie in NAMES[:3]]
    assert recover(rows)["last_entry"] == 19


def test_nothing_gives_nothing() -> None:
    """Empty tables are read, counted and decided."""
    copies, bookies, harm = (schema.empty_table() for schema in (tables.COPIES, tables.BOOKIES, tables.DAMAGE))
    assert count_shapes(copies, bookies) == ShapeCounts()
    found = reconstruct(copies, bookies, harm, Prior.build(ShapeCounts()), InferOptions())
    assert found.schema == tables.RECONSTRUCTION
    assert found.num_rows == 0


def test_passwords_are_not_shown() -> None:
    """Options may land in a log."""
    assert "hunter2" not in repr(SECRET)
