"""``python -m ghofl``."""

from ghofl.cli import main

if __name__ == "__main__":
    main()
