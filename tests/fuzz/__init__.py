"""Fuzzing of everything that reads what others wrote: one module a target, run by ``python -m tests.fuzz NAME``.

A target has ``check(data)``, which raises AssertionError where the code under test breaks the target's contract, and
``seeds()``, real messages made by real encoders. ``found/NAME`` keeps the inputs that failed once.
``tests/unit/ingest/test_fuzz_regressions.py`` runs ``check`` over both.
"""
