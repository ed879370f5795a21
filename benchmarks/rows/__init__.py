"""The rows: each a stage, and the floor or the peer that it is compared with."""
