"""Real servers, and the Java clients that stages are compared with."""
