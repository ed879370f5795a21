"""Bookies, the store and snapshots compared, and what becomes of each ledger."""
