"""KV memory as numbers: which blocks exist, who holds them, and what the full ones contain. The bytes themselves belong to a backend."""
