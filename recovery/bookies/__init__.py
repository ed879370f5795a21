"""Bookies by name: their addresses, their lists over the wire, single entries over the wire or from their disks."""
