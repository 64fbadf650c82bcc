"""Rollup minutes as the writer computes them: accumulated while they are open, written when they are over."""
