"""Everything that writes to a store: journalled, compared and set, read back."""
