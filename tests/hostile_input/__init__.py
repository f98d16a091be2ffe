"""Input that nobody means well with, drawn from a seed, and the verdict on what becomes of it.

`queries` and `arguments` draw it, `tables` makes what it is asked of, and `verdict` judges every
reply. The tests take a few hundred of each; `python -m benchmarks hostile_input` takes all.
"""
