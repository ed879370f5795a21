"""Pure rules over the segments of records: where their bookies stand, and what these hold."""
