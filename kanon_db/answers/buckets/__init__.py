"""Answers of buckets: what the codes of their slots tell of a question.

`bucket_evidence` asks the server what holds for distinct values, and makes estimates of the
`bucket_totals` of all chunks: tallies of counts where both sides are apart, `bucket_pairs` where a
record and a value are compared. What is tallied of a bucket, and what its records weigh, is in
`publications.buckets`, which measures buckets by it.
"""
