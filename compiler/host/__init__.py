"""What this machine can do for a target: compile for it, emulate it, run its code."""
