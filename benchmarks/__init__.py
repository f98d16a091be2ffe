"""Measurements: ratios against a floor or a peer taken in the same run, medians, never asserts."""
