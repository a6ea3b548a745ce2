"""The command that answers over HTTP: `serve`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.names import shorten


def serve(
    model: Annotated[Path, typer.Argument(help="An ONNX file written by 'ghofl export'.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; with 0.0.0.0 other machines can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 chooses a free one.", min=0, max=65535)] = 8000,
    reject: Annotated[
        float | None,
        typer.Option(
            help="Give no label to samples that fit none of the classes; this share of samples that do fit is rejected too."
        ),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Answer POST /predict over HTTP from an exported file, until Ctrl-C; requests are not kept.

    It has no passwords and no TLS: put a reverse proxy with both in front of it, or use it on this machine only.

    Example: ghofl serve rda.onnx --port 8000 --reject 0.05
    """
    console.check_outputs(json, force)
    from ghofl.export.exported import Exported
    from ghofl.export.service import service  # its error has the install line
    from ghofl.heads.head import PERSONAL
    from ghofl.web.server import listen, server_of

    exported = Exported.load(model)
    if exported.about.get("personal"):
        console.tell("Warning", PERSONAL.format(shorten(exported.about["personal"], 300)))
    app = service(exported, reject)
    with listen(host, port) as listening:
        url = f"http://{host}:{listening.getsockname()[1]}"
        console.say(
            {"url": url, "head": exported.about.get("head"), "classes": len(exported.classes), "takes": exported.kind},
            f"Serving {model} at {url}: POST {url}/predict, and {url}/docs says how. Ctrl-C ends it.",
            json,
        )
        try:
            server_of(app).run(sockets=[listening])
        except KeyboardInterrupt:  # the way to end it, not a failure
            if json != "-":
                console.out.print("Stopped serving.")
