"""Entries as writers send them, for properties of what holds them."""

from hypothesis import strategies as st

from recovery.codecs import entry
from recovery.codecs.entry import EntryHeader
from recovery.model.metadata import Digest

LEDGERS = st.one_of(st.integers(0, 5), st.integers(0, (1 << 63) - 1))
IDS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1))
USUAL = st.one_of(st.integers(0, 300), st.integers(0, (1 << 48) - 1))
"""Entry ids as clients give them; larger ones need more evidence where a source is damaged."""
SCOPES = st.one_of(st.just(0), st.integers(-(1 << 63), (1 << 63) - 1))
PASSWORDS = st.sampled_from([b"", b"secret"])


@st.composite
def records(
    draw: st.DrawFn, digests: tuple[Digest, ...] = tuple(Digest), entry_ids: st.SearchStrategy[int] = IDS
) -> bytes:
    """One entry of any ledger."""
    payload = draw(st.one_of(st.binary(max_size=40), st.integers(0, 300).map(lambda size: b"p" * size)))
    header = EntryHeader(
        draw(LEDGERS),
        draw(entry_ids),
        draw(st.one_of(st.just(-1), st.integers(0, 300))),
        len(payload) + draw(st.integers(0, 1 << 40)),
    )
    return entry.encode(header, payload, draw(st.sampled_from(digests)), draw(PASSWORDS))
