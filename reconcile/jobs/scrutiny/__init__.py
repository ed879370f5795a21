"""One scrutiny of a cluster: its store and its bookies, looked at twice, and what came of each ledger."""
