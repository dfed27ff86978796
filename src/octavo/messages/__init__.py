"""The values that cross a border: wire.py client <-> engine, step.py scheduler <-> worker, stats.py engine -> metrics."""
