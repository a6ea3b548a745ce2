"""Classifiers for other runtimes: one ONNX file."""
