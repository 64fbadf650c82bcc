"""Life of samples after they landed: reading, seals, archive, questions, imports, exports."""
