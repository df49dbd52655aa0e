"""What knowing the future is worth, and what a policy can do without."""
