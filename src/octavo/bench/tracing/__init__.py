"""Where each microsecond of a step goes in a server: its processes traced from outside, its own code as it is."""
