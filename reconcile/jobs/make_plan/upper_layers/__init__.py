"""What a plan makes of upper layers' nodes: their writes, subscriptions beyond the end, ledgers that no topic names."""
