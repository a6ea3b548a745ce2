"""The systems that GH-OFL is compared with, and its paper's tables and figures as commands.

`python -m ghofl_benchmarks --help` lists them. Modules that train networks need torch; the others do not.
"""
