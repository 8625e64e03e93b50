"""What a finished model says of itself, and how others get it."""
