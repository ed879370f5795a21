"""Scrutiny: do bookies and metadata agree, ledger by ledger; pure functions over tables, and the state of a run."""
