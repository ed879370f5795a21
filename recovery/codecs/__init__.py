"""One module a format: bytes to values and back, without I/O, clock or logging."""
