"""Search for timelines, and bounds on them."""
