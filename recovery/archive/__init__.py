"""Archives of entries: ledgers copied from bookies into objects, an index of them, and everything back out of both."""
