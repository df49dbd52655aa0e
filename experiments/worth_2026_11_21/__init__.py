"""What prefetch, look-ahead, overlap, view period and memory are worth, one at a time."""
