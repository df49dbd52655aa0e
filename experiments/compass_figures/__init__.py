"""How our Compass compares with the simulator that one of its authors released."""
