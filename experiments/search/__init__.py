"""What the local search reaches, and what each of its parts is worth."""
