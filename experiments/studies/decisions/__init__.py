"""What single decisions are worth."""
