"""What each stage costs beside the floor that nothing can go below: see `docs/internals/benchmarks.md`."""
