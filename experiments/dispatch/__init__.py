"""How long after it could a task starts on a device, with 1 to 8 GPUs that one process drives."""
