"""The search for optimal classes: which ones are worth a look, and which to take."""
