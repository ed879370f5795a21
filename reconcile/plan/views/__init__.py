"""Plans as people read them."""
