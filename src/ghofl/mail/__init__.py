"""Secure rounds without a network: every letter between server and sites is a file that people carry."""
