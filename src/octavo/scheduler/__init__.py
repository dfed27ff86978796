"""Who computes what in the next step: policy only, no arrays, no device, no clock."""
