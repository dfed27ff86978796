"""The loop: requests in, steps through one executor, deltas out. Owns the scheduler, the KV tables and the process they live in."""
