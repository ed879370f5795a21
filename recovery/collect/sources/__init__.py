"""What a bookie keeps its entries in: indexes, entry logs, journals; each read on its own."""
