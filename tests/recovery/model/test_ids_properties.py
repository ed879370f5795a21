"""Ledger ids: text forms and buckets, for any id."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recovery.model.ids import BUCKETS, LedgerId, buckets, parse, to_signed, to_unsigned

halves = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.builds(LedgerId, st.one_of(st.just(0), halves), halves)


@given(ids)
def test_every_text_form_gives_the_id_back(ledger: LedgerId) -> None:
    """What one command prints, the next one reads as the same ledger."""
    scope, half = ledger.unsigned_key
    name = ledger.qualified_name
    dashed = "-".join((name[:8], name[8:12], name[12:16], name[16:20], name[20:]))
    for text in (str(ledger), name, name.upper(), dashed, f"{scope}:{half}", f"{scope:#x}:{half:#x}"):
        assert parse(text) == ledger


@given(ids, ids)
def test_order_is_that_of_the_qualified_names(one: LedgerId, other: LedgerId) -> None:
    """Ids are ordered as unsigned, which is how their fixed-width names sort as text."""
    assert (one < other) == (one.qualified_name < other.qualified_name)


@given(halves)
def test_signed_and_unsigned_are_one_pattern(half: int) -> None:
    """Each conversion undoes the other."""
    assert to_signed(to_unsigned(half)) == half


@given(st.lists(ids))
def test_a_bucket_is_the_same_alone_and_among_many(ledgers: list[LedgerId]) -> None:
    """One id's bucket, and a column's, agree and stand in range."""
    scope = np.array([ledger.scope for ledger in ledgers], np.int64)
    half = np.array([ledger.ledger for ledger in ledgers], np.int64)
    found = buckets(scope, half)
    assert found.tolist() == [ledger.bucket for ledger in ledgers]
    assert all(0 <= bucket < BUCKETS for bucket in found)


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    """Nothing but ValueError comes out of text that is no id."""
    try:
        parse(text)
    except ValueError:
        return
    assert parse(str(parse(text))) == parse(text)
