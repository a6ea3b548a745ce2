"""The app at the server: a run's configuration becomes `Settings`, the grid an `Engine`, and `federation` does it all."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ghofl.flower.engine import GridEngine, return_large_blocks
from ghofl.flower.federation import run
from ghofl.flower.folder import INCOMING
from ghofl.flower.settings import Settings
from ghofl.recipe import Recipe


def make_app(recipe: str | Path) -> ServerApp:
    """A server app for the federation of one recipe file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        return_large_blocks()
        settings = Settings.of_config(context.run_config)
        run(GridEngine(grid, Path(settings.folder) / INCOMING), Recipe.load(recipe), settings)

    return app
