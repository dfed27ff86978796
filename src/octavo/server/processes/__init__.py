"""Several API processes on one port and one engine: the supervisor that keeps them, and what they share."""
