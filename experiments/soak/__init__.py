"""Whether anything grows, drifts or goes wrong when devices run for long."""
