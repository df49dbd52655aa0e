"""What computes tasks on devices: synthetic work, architectures of `transformers`, or the user's own modules."""
