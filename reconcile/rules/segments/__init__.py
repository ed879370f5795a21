"""Pure rules over the segments of records: the places of their bookies, and what these hold."""
