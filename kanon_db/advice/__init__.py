"""Recommends what to publish: candidates are tried as dry runs and compared, with reasons."""
