"""What `scripts/pack collect` packs, and how."""
