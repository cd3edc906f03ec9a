"""Reward functions in TRL's form, usable without the trainer.

Each module holds the rewards of one task as plain functions, for `GRPOTrainer(reward_funcs=[...])` or any caller that
passes `completions` and the dataset's columns by keyword. Fix a parameter with `functools.partial`. Importing this
package imports none of them.
"""
