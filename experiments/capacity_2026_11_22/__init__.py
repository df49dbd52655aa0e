"""From a log of a service to an order: five commands, timed."""
