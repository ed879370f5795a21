"""Jobs that change a store, take a change back, or try it where it does no harm."""
