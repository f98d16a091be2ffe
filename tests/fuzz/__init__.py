"""A fuzzer of questions: tables, publications and questions that follow from a seed.

Each scenario is a table with columns of random types, published in a random way; its questions are
drawn from the grammar of `tests.meaning`, and the answers compared with PostgreSQL's on the source.
``python -m tests.fuzz --questions 20000 --seed 1`` asks more than the test does.
"""
