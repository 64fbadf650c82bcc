"""``plantlog bench choose``: plantlog beside other databases, by a method that an industrial vendor used.

Its steps by name: ingest against batch size; ingest against clients; the sustained rate at a p99; p95 of queries of
random intervals while data come in; bytes a sample with metadata; all of it normalised and weighted into a decision
matrix. Beside them stands what each database gives back of what it was sent.

``data``: what is written and what the right answers are. ``steps``: what is measured. ``answers``: what came back.
``matrix``: weights and ranks. ``adapters``: a module for each contestant. ``find``: where their programs are.
"""
