"""Ledger metadata as a value."""

from recovery.model.metadata import DIGEST_SIZES, Digest, LedgerMetadata, LedgerState, Segment


def test_a_password_never_shows() -> None:
    """The text form of a value, which may land in a log or a traceback, has no password and no custom metadata."""
    metadata = LedgerMetadata(
        3,
        1,
        1,
        1,
        LedgerState.OPEN,
        None,
        None,
        (Segment(0, ("a",)),),
        Digest.HMAC,
        b"s3cr3t",
        custom=(("owner", b"hidden"),),
    )
    for text in (repr(metadata), str(metadata), f"{metadata}", repr([metadata])):
        assert "s3cr3t" not in text
        assert "hidden" not in text


def test_every_digest_has_its_size() -> None:
    """No digest type is without the number of bytes that it takes inside an entry."""
    assert set(DIGEST_SIZES) == set(Digest)
