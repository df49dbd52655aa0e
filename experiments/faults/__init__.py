"""What is lost when loads, runs and transfers fail, and GPUs die: faults injected into runs on devices."""
