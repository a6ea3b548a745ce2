"""Federations on one machine: the whole story in thirty lines, experiments, the demo."""
