"""Classifiers for other runtimes: one ONNX file, and a card that says what is in it."""
