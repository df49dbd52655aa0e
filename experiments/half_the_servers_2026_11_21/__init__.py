"""How many servers each policy, and a plan, needs for the same service."""
