"""The values and tables that everything else speaks in."""
