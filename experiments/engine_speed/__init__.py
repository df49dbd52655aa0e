"""How fast the engine is under Compass, on a cluster of 240 GPUs and on one of 5."""
