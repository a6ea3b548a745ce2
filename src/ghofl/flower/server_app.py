"""The app at the server: a run's configuration becomes `Settings`, the grid an `Engine`, and `federation` does it all."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ghofl.flower.engine import GridEngine
from ghofl.flower.federation import Settings, run
from ghofl.recipe import Recipe


def make_app(recipe: str | Path) -> ServerApp:
    """A server app for the federation of one recipe file."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        run(GridEngine(grid), Recipe.load(recipe), Settings.of_config(context.run_config))

    return app
