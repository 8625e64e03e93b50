"""The page kit: templates, figures, and numbers that several pages show."""
