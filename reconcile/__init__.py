"""Compare what is stored with what is held, decide, and change the store."""
