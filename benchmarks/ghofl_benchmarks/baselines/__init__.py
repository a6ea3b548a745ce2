"""Other ways to train a classifier over sites: one message each, a model each, or many rounds."""
