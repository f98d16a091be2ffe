"""Publishing, whatever the kind: one pipeline, a registry of kinds, their examination."""
