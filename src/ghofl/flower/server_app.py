"""The app at the server: a run's configuration becomes `Settings`, the grid an `Engine`; `federation` does the work."""

import logging
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ghofl.errors import GhoflError
from ghofl.flower.engine import GridEngine, log_with_flower, return_large_blocks
from ghofl.flower.server.federation import run
from ghofl.flower.server.folder import INCOMING
from ghofl.flower.server.report import write_html
from ghofl.flower.server.settings import Settings
from ghofl.recipe import Recipe

log = logging.getLogger("flwr")


class OneLine(logging.Filter):
    """A run that ends with a `GhoflError` gives one line in Flower's log; only unexpected errors give a traceback.

    The error itself reaches Flower, which counts the run as failed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the traceback by the reason."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, GhoflError):
            record.msg, record.args, record.exc_info = "The run was not completed: %s", (str(error),), None
            return True
        # The simulation engine logs a traceback as a text, while it handles the error.
        is_traceback = str(record.msg).startswith("Traceback (most recent call last)")
        return not (is_traceback and isinstance(sys.exc_info()[1], GhoflError))


def make_app(recipe: str | Path) -> ServerApp:
    """A server app for the federation of one recipe file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        if not any(isinstance(there, OneLine) for there in log.filters):
            log.addFilter(OneLine())
        log_with_flower()
        return_large_blocks()
        settings = Settings.of_config(context.run_config)
        run(GridEngine(grid, Path(settings.folder) / INCOMING), Recipe.load(recipe), settings)
        log.info(write_html(settings.folder))

    return app
