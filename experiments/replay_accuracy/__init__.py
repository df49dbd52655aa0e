"""How far a run on this machine's cores is from what a profile predicts."""
