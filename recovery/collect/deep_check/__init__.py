"""A bookie compared with itself: index, entry logs and journals entry by entry, with the digest of every copy."""
