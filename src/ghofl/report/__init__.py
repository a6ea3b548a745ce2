"""One offline page about a federation: who took part, what was built, how it does."""
