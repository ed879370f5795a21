"""Every use case as a function: no command line, no environment."""
