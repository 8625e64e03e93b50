"""SavedModels that take text."""
