"""How far from optimal online policies are, from light load to 90 % of capacity."""
