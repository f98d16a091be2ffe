"""What all algorithms stand on: array types, exact numbers, the pulse, proofs, the solver."""
