"""One ledger from every side, in words."""
