"""What a question means on a publication is what it means on the source.

Questions are drawn from a grammar of all that is accepted, over tables with columns of many types
and NULLs. The same text is asked of the source, where PostgreSQL itself reads it: the bounds must
contain that answer, and the estimate must lie within the bounds.
"""
