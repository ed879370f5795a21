"""Stores of keys and bytes; nothing here knows what the bytes mean."""

import os

# A process that has used grpc also starts others: Java for Spark, at least. grpc's handlers would run in each child,
# before it becomes the other program, and end it at times: 8 of 120 with grpc 1.85.1, grpc/grpc#43055. Who wants these
# handlers sets the variable.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
