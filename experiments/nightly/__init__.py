"""Random scenarios of mixed features, from microseconds to weeks: every answer against the oracle."""
