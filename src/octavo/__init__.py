"""Octavo: an inference engine and server for large language models."""
