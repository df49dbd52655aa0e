"""How answers are shown: tables, figures, pages, files."""
