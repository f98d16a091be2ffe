"""Measures of loss and privacy, independent of the algorithms they judge."""
