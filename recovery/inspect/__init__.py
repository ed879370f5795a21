"""Files read alone: what a file of a bookie or a store holds, and what each of its bytes is."""
