"""Questions of ``schema/questions``: their parameters, the samples that they read, and their answers."""
