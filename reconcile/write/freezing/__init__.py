"""Freeze and thaw: the rights that keep bookies from listing ledgers, taken and given back."""
