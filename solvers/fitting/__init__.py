"""Laws of engines, fitted to logs of what they served."""
