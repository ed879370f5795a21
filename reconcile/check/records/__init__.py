"""Records of one cluster from two sides, compared: two stores, or the store and a plan of `recover`."""
