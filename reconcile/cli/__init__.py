"""Every command of the program."""
