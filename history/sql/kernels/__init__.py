"""Kernels: pure functions of numpy from the samples of a portion to a table, for what SQL is too slow for."""
