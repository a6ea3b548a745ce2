"""The paper's tables and figures as commands.

Examples:
  python -m ghofl_benchmarks table main --sets cifar10 --alphas 0.05
  python -m ghofl_benchmarks table nlp
  python -m ghofl_benchmarks figure tradeoff
  python -m ghofl_benchmarks flamby
  python -m ghofl_benchmarks pacs FOLDER
  python -m ghofl_benchmarks page

Each table runs what data is present, says what is missing and how to get it, and writes NAME.json, NAME.md and NAME.svg
into the results folder, the paper's figures beside ours. Rows of earlier runs stay unless they are measured again.
GHOFL_DATA names the folder of embeddings, GHOFL_EMBEDDINGS that of texts' embeddings.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ghofl.errors import GhoflError
from ghofl_benchmarks import cameras, candidates, flamby, made, no_shift, pacs, report
from ghofl_benchmarks.data import IMAGES, SMALL, TEXTS, DataMissingError
from ghofl_benchmarks.defaults import write_defaults
from ghofl_benchmarks.figures import DRAW, FIGURES
from ghofl_benchmarks.page import write_page
from ghofl_benchmarks.report import new_result
from ghofl_benchmarks.tables import TABLES, Settings, has_torch, load_table, note_sets


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when something was measured, 2 when nothing could be."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(arguments)
    try:
        if options.command == "table":
            return _table(options, arguments)
        if options.command == "figure":
            return _figure(options)
        if options.command in SITES:
            return _sites(options, tuple(arguments))
        print(f"wrote {write_page(options.out)}")
        if options.out == report.RESULTS:
            print(f"wrote {write_defaults()}")
    except (DataMissingError, GhoflError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _table(options: argparse.Namespace, arguments: list[str]) -> int:
    if unknown := [name for name in options.sets if name not in {*IMAGES, *SMALL, *TEXTS}]:
        print(f"{unknown[0]!r} is not a set; known are {', '.join([*IMAGES, *SMALL, *TEXTS])}.", file=sys.stderr)
        return 2
    if options.device == "cuda" and not _has_gpu():
        return 2
    settings = Settings(
        sets=options.sets, alphas=options.alphas, methods=options.methods, clients=options.clients, rows=options.rows,
        rounds=options.rounds, device=options.device, seed=options.seed, seeds=options.seeds, arguments=tuple(arguments),
    )  # fmt: skip
    made.code()
    run, draw = load_table(options.name)
    print(f"{TABLES[options.name]}:", flush=True)
    try:
        result = run(settings)
    except KeyboardInterrupt:
        result = settings.begun[-1] if settings.begun else new_result(f"table-{options.name}", "", options.seed)
        print(f"interrupted: {len(result['rows'])} rows were measured and are kept.", file=sys.stderr)
    note_sets(result)
    measured = len(result["rows"])
    if not options.fresh:
        result = report.merged(report.read(result["name"], options.out), result)
    for path in report.write(result, options.out, draw, has_older_rows=len(result["rows"]) > measured):
        print(f"wrote {path}")
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
    return 0 if result["rows"] else 2


def _figure(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"figure-{options.name}.svg"
    found = DRAW[options.name](options.out, path)
    made.store(path.with_suffix(".json"), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    made.record(path)
    print(f"wrote {path} and {path.with_suffix('.json').name}")
    return 0


def _sites(options: argparse.Namespace, arguments: tuple[str, ...]) -> int:
    """Run one of the commands about sites that differ."""
    made.code()
    if options.command == "cameras" and options.images is not None:
        if not _has_gpu():
            return 2
        cameras.embed(options.images, options.weights, "cuda", options.rows)
        return 0
    for path in report.write(SITES[options.command](options, arguments), options.out):
        print(f"wrote {path}")
    return 0


SITES = {
    "flamby": lambda o, a: flamby.run(o.folder, o.splits, o.fine_splits, a),
    "pacs": lambda o, a: pacs.run(o.folder, o.splits, a),
    "no-shift": lambda o, a: no_shift.run(o.sets, o.rows, a),
    "cameras": lambda o, a: cameras.run(o.rows, a),
    "candidates": lambda o, a: candidates.run(o.images, o.tables, a),
}


def _has_gpu() -> bool:
    if not has_torch():
        print("--device cuda needs torch: pip install torch.", file=sys.stderr)
        return False
    import torch

    if not torch.cuda.is_available():
        print("--device cuda: torch sees no GPU here; leave the option out to run on the CPU.", file=sys.stderr)
        return False
    return True


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m ghofl_benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = whole.add_subparsers(dest="command", required=True)
    lines = "\n".join(f"  {name:14} {about}" for name, about in TABLES.items())
    table = commands.add_parser(
        "table", help="run one of the paper's tables", description=f"Run one of the paper's tables:\n\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    table.add_argument("name", choices=list(TABLES))
    table.add_argument(
        "--sets", type=_words, default=(), help=f"of {','.join([*IMAGES, *SMALL, *TEXTS])}; the table's unless given"
    )
    table.add_argument("--alphas", type=_numbers, default=(), help="Dirichlet parameters, e.g. 0.05,0.5")
    table.add_argument("--methods", type=_list, default=(), help="starts of methods' names, e.g. 'FedPFT;DENSE'")
    table.add_argument("--clients", type=int, default=10)
    table.add_argument("--rounds", type=int, default=10, help="of methods in rounds")
    table.add_argument("--rows", type=int, help="only so many training rows, to try it")
    table.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where networks are trained")
    table.add_argument("--seed", type=int, default=0)
    table.add_argument("--seeds", type=int, default=1, help="splits by this many seeds for each baseline of 'clients'")
    table.add_argument("--fresh", action="store_true", help="forget rows of earlier runs")
    table.add_argument("--json", action="store_true", help="print the result as JSON, too")
    lines = "\n".join(f"  {name:14} {about}" for name, about in FIGURES.items())
    figure = commands.add_parser(
        "figure", help="draw a figure from stored results", description=f"Draw one from stored results:\n\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    figure.add_argument("name", choices=list(FIGURES))
    heart = commands.add_parser("flamby", help="four hospitals, one message each, beside FLamby's rounds")
    heart.add_argument("--folder", type=Path, help="the hospitals' files (default hospitals/heart in GHOFL_DATA)")
    heart.add_argument("--splits", type=int, default=50, help="splits beside FLamby's own")
    heart.add_argument("--fine-splits", type=int, default=500, help="splits for leave-out's estimate")
    others = _sites_parsers(commands)
    page = commands.add_parser("page", help="write the results page, and docs/defaults.md, from stored results")
    for command in (table, figure, heart, *others, page):
        command.add_argument("--out", type=Path, default=report.RESULTS, help="folder of results (default %(default)s)")
    return whole


def _sites_parsers(commands: Any) -> list[argparse.ArgumentParser]:
    """The parsers of the other commands about sites that differ."""
    domains = commands.add_parser("pacs", help="PACS's four domains as sites that see things differently")
    domains.add_argument("folder", type=Path, help="DOMAIN.npz of every domain, by 'ghofl embed'")
    domains.add_argument("--splits", type=int, default=pacs.SPLITS)
    alike = commands.add_parser("no-shift", help="sites that differ only in how common classes are")
    alike.add_argument("--sets", type=_words, default=(), help=f"of {','.join(no_shift.SETS)}")
    alike.add_argument("--rows", type=int, help="only so many training rows, to try it")
    seen = commands.add_parser("cameras", help="twenty cameras on CIFAR-10")
    seen.add_argument("rows", type=Path, help="folder of rows, which --images writes")
    seen.add_argument("--images", type=Path, help="archives of images, to write their rows on a GPU")
    seen.add_argument("--weights", type=Path, help="MobileNetV2's")
    tried = commands.add_parser("candidates", help="what a site tries for its own head, compared on training rows")
    tried.add_argument("--images", type=Path, help="folder of PACS's rows, as for 'pacs'")
    tried.add_argument("--tables", type=Path, help="folder of tables (.csv with a column 'label') and vectors (.npz)")
    return [domains, alike, seen, tried]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";"))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
