"""A bookie's sources of entries: indexes, entry logs, journals; each is read on its own."""
