"""How long an import of a million rows takes, and how much memory."""
