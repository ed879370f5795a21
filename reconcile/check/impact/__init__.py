"""Whether bookies may be taken away: from metadata alone, segment by segment, each with its own E, W and A."""
