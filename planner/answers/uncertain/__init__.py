"""Run times that are only estimated: what planners and policies are told, what is true, and plans that allow for it."""
