"""Bookies asked for their addresses, their lists, and single entries: over the wire, or on their disks."""
