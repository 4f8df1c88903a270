"""The trainer as a component: packed rows in, SavedModel and training log out."""
