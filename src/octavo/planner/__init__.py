"""Sizing on paper: pure arithmetic that start-up and the commands share, so that what is planned is what runs."""
