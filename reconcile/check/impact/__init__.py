"""May these bookies be taken away? Told from metadata alone, segment by segment, each with its own E, W and A."""
