"""One module a command: it reads arguments, calls one job, and shows one result."""
