"""Pulsar as an upper layer of a plan: its topics' nodes, subscriptions beyond the end, ledgers that no topic names."""
