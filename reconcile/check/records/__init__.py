"""Records of one cluster from two sides, held together: two stores, or what is true and what recover would write."""
