"""What each stage costs beside the floor that nothing can go below: see `docs/design/0004-benchmarks.md`."""
