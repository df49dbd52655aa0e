"""What not knowing the path costs."""
