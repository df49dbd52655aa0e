"""Online policies that need a solver."""
