"""Options that several commands share, a module for what they are about."""
