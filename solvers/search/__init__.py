"""Search for timelines: decoder, dispatch rules, annealing."""
