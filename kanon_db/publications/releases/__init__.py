"""Compares a release with earlier releases of the same people, and refuses what tells too much.

``ledger`` lists earlier releases by who could read them, ``joint_disclosure`` measures what
releases tell together, ``release_check`` decides whether a release may be read beside others, and
``entities`` hashes whom records are about, by which refreshes know people again.
"""
