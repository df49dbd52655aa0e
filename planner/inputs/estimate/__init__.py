"""Run times that are not known: estimates from measured profiles, past tasks and text, with honest intervals."""
