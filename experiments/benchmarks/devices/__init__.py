"""What the executor reaches on a device: loads, dispatch, prediction, overlap, and outputs that may not differ."""
