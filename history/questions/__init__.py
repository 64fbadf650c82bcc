"""The questions of ``schema/questions``: what is asked of which samples, and the answers."""
