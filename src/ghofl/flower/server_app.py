"""The app at the server: a run's configuration becomes `Settings`, the grid an `Engine`; `federation` does the work."""

import logging
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ghofl.errors import GhoflError
from ghofl.flower.engine import GridEngine, logging_with_flower
from ghofl.flower.server.federation import run
from ghofl.flower.server.folder import INCOMING
from ghofl.flower.server.report import write_html
from ghofl.flower.server.settings import Settings
from ghofl.recipe import Recipe

log = logging.getLogger("flwr")


class OneLine(logging.Filter):
    """The `GhoflError` that ends a run is one line in Flower's log; only unexpected errors give a traceback.

    The error itself reaches Flower, which counts the run as failed. Records of anything else stay as they are.
    """

    def __init__(self, error: GhoflError) -> None:
        super().__init__()
        self._error = error

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the traceback by the reason."""
        if record.exc_info and record.exc_info[1] is self._error:
            record.msg, record.args, record.exc_info = "The run was not completed: %s", (str(self._error),), None
            log.filters = [each for each in log.filters if each is not self]
            return True
        # The simulation engine logs a traceback as a text, while it handles the error.
        is_traceback = str(record.msg).startswith("Traceback (most recent call last)")
        return not (is_traceback and sys.exc_info()[1] is self._error)


def make_app(recipe: str | Path) -> ServerApp:
    """A server app for the federation of one recipe file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            with logging_with_flower():
                settings = Settings.of_config(context.run_config)
                run(GridEngine(grid, Path(settings.folder) / INCOMING), Recipe.load(recipe), settings)
                log.info(write_html(settings.folder))
        except GhoflError as error:
            log.addFilter(OneLine(error))
            raise

    return app
