"""Segments as columns: their records, their missing copies, and the effect of bookies' states."""
