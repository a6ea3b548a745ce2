"""Federations on one machine: the whole story told in a few lines, and trials with rows split over clients."""
