"""The tables of an inventory, made of flat arrays: copies, facts of ledgers, damage."""
