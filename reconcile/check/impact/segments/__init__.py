"""Segments as columns: what records say, which copies are missing, and what states of bookies do to them."""
