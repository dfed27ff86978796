"""The real scheduler and KV memory on a fake clock: what an engine would do under traffic that nobody has to send."""
