"""Loaders that bring each task's published data into TRL's form, usable without the trainer.

One module per task; each returns a `datasets.Dataset` with a conversational `prompt` column and an `answer` column,
which the reward functions of the same task read. Importing this package imports none of them.
"""
