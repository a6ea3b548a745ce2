"""A complete Flower app folder for the federation of one recipe."""

from pathlib import Path

from ghofl import files
from ghofl.errors import SiteError
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.recipe import Recipe

PACKAGE = "federation"


def write_app(folder: str | Path, recipe: Recipe, name: str = "") -> list[Path]:
    """Write an app folder that is ready for ``flwr run``, and return its files.

    The folder must be new or empty, so that no file of the user is overwritten.
    """
    folder = Path(folder)
    name = name or folder.resolve().name
    if not name.replace("-", "").replace("_", "").isalnum() or not name[0].isalpha():
        raise SiteError(f"{name!r} cannot be the app's name; name the folder with letters, digits and dashes.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SiteError(f"{folder} exists and is not an empty folder; give the name of a new one.")
    contents = {
        "pyproject.toml": _pyproject(name, recipe),
        "README.md": _readme(name, recipe),
        f"{PACKAGE}/__init__.py": '"""The federation of one ghofl recipe."""\n',
        f"{PACKAGE}/client_app.py": _CLIENT,
        f"{PACKAGE}/server_app.py": _SERVER,
        f"{PACKAGE}/recipe.toml": recipe.to_toml(),
        "site/site.toml": _site(recipe),
        "site/policy.toml": _policy(recipe),
    }
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        files.write(folder / path, content)
    return [folder / path for path in contents]


_CLIENT = '''"""The app at a site: it answers the server's queries according to the site's own configuration."""

from ghofl.flower.client_app import make_app

app = make_app()
'''

_SERVER = '''"""The app at the server: it collects what the recipe asks for, and builds heads from the total."""

from pathlib import Path

from ghofl.flower.server_app import make_app

app = make_app(Path(__file__).parent / "recipe.toml")
'''


def _pyproject(name: str, recipe: Recipe) -> str:
    is_secure = recipe.privacy.secure
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A one-shot federation of {len(recipe.classes)} classes with ghofl"
license = "Apache-2.0"
dependencies = []          # each machine has ghofl[flower] installed; a run installs nothing anywhere

[tool.hatch.build.targets.wheel]
packages = ["{PACKAGE}"]

[tool.flwr.app]
publisher = "ghofl"
fab-exclude = ["site/**"]

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server_app:app"
clientapp = "{PACKAGE}.client_app:app"

[tool.flwr.app.config]
folder = ""                # where the server keeps everything; give an absolute path
sites = 0                  # how many nodes to wait for; 0 continues with those that are connected
min-sites = {max(3 if is_secure else 1, recipe.privacy.min_cohort)}              # with fewer sites in the total, no head is built
wait = 60.0                # seconds to wait for nodes
timeout = 600.0            # seconds to wait for the answers to a query
heads = "{DEFAULT_HEAD}"             # heads to build, e.g. "lda,rda"
novelty = false            # heads also recognise rows of none of the classes, for 'ghofl predict --reject'
remove = ""                # sites to take out of the total, e.g. "north,south"
forget = false             # delete the message of those sites too, instead of keeping it in removed/
dropout = 0.1              # secure rounds: the share of sites that may vanish, rounded up where a plan allows it
corruption = 0.1           # secure rounds: the share of sites that may collude with the server, rounded up
authenticated = true       # secure rounds: every site's key is signed by its node's key
peers = ""                 # secure rounds: a file of the names and node keys that may take part
simulated-embeddings = ""  # for simulations: an .npz with x_train and y_train
simulated-alpha = 0.0      # for simulations: Dirichlet skew; 0 splits evenly
simulated-seed = 0
"""


def _site(recipe: Recipe) -> str:
    key = (
        '\nauth_key = "/etc/ghofl/north"          # the private key of --auth-supernode-private-key'
        if (recipe.privacy.secure)
        else ""
    )
    return f"""# One site's own configuration. Copy it to the site, change it there, and start its SuperNode with
#   flower-supernode … --node-config 'site="/etc/ghofl/site.toml"'
# It stays at the site: nothing in this folder is part of the app that the server sends out.
name = "north"                         # its name in the roster, under which its node is registered
embeddings = "/data/north.npz"         # arrays x and y; or samples and an encoder:
# data = "/data/images"
# encoder = "onnx:/models/encoder.onnx"
folder = "/var/lib/ghofl"              # what the site remembers: its message, approvals, a round's secrets
recipe = "/etc/ghofl/recipe.toml"      # its own copy of the agreed recipe; any other is refused
policy = "policy.toml"{key}
# With the site's own keeper, running as another user than the SuperNode: ghofl keeper /etc/ghofl/site.toml, and
#   flower-supernode … --node-config 'keeper="/run/ghofl/north.sock"'
# socket = "/run/ghofl/north.sock"
# socket_group = "ghofl-letters"
# allow = ["flower"]
"""


def _policy(recipe: Recipe) -> str:
    privacy = recipe.privacy
    promise = (
        f'epsilon = {privacy.epsilon}\ndelta = {privacy.delta}\nnoise = ["{privacy.noise}"]'
        if privacy.epsilon is not None
        else "# epsilon = 8.0         # the weakest promise accepted\n# delta = 1e-5"
    )
    rows = (
        f"min_rows = 1\ndisclosure = {{ class_rows = {privacy.min_count} }}   "
        "# if a class has rows but fewer than this, nothing is sent"
        if privacy.epsilon is None
        else "# min_rows would answer without noise; ghofl flower check shows the rows, and those of the smallest class, instead"
    )
    peers = (
        """peers = "peers.toml"     # write this file: name = "ecdsa-sha2-nistp384 AAAA…" lines, one for every site of a round
# any_peers = true       # or this instead of peers: a server that invents the other sites then learns this site's part"""
        if privacy.secure
        else '# peers = "peers.toml"   # secure rounds need this, or any_peers = true'
    )
    return f"""# This site's conditions, whatever the server asks for.
{rows}
secure = {str(privacy.secure).lower()}           # only under secure aggregation
{promise}
confirm = true           # nothing leaves before it is approved, by ghofl flower check
{peers}
min_survivors = 3
corruption = 0.1
min_difference = 3       # no combination of the sums that a round's sites know of is about fewer sites
# max_epsilon = 8.0      # what all releases may spend together; by default epsilon and delta
# max_delta = 1e-5
"""


def _readme(name: str, recipe: Recipe) -> str:
    round_ = "a secure round, in which the server learns the sum and no part of a site that checks its peers"
    mode = round_ if recipe.privacy.secure else "one message from every site"
    fill = ", and write `peers.toml` (or `any_peers = true`) for its policy" if recipe.privacy.secure else ""
    return f"""# {name}

A one-shot federation with [ghofl](https://pypi.org/project/ghofl/) on [Flower](https://flower.ai): {mode}.
Recipe `{recipe.fingerprint[:12]}…`: {len(recipe.classes)} classes, {recipe.encoder.dim} numbers per sample from
`{recipe.encoder.name}`.

    pip install 'ghofl[flower]'          # or, in a checkout of ghofl: pip install '.[flower]'

## At every site

1. Copy `site/site.toml`, `site/policy.toml` and `{PACKAGE}/recipe.toml` to the site and fill them in{fill}.
2. Look at what would leave, and approve it by the sha256 that the first command shows:

       ghofl flower check site.toml --recipe recipe.toml
       ghofl flower check site.toml --recipe recipe.toml --confirm SHA256

3. Start the node:

       flower-supernode --superlink SERVER:8000 --root-certificates ca.crt \\
           --auth-supernode-private-key north --node-config 'site="/etc/ghofl/site.toml"'

   Several nodes on one machine need a port each: `--port 9095` and so on.

## At the server

    flower-superlink --host 0.0.0.0 --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
        --enable-supernode-auth --disable-runtime-dependency-installation
    flwr supernode register north.pub CONNECTION --name north
    flwr run . CONNECTION --stream --run-config 'folder="/srv/ghofl/{name}" sites=3'
    ghofl flower status /srv/ghofl/{name}

`CONNECTION` is a section of Flower's `config.toml`, with another name than this folder's. Run it again after a crash, or
when a site comes late: sites whose messages are in the folder are not asked again. `--run-config 'remove="north"'` takes a
site out of a plain total, and with `forget=true` its message is deleted.

## On one machine

    pip install 'ghofl[flower-simulation]'
    GHOFL_SIMULATION=1 flower-superlink --insecure --simulation --host 127.0.0.1 --port 8100 \\
        --disable-runtime-dependency-installation
    flwr run . LAPTOP --stream --federation-config 'num-supernodes=100' \\
        --run-config 'folder="/tmp/{name}" simulated-embeddings="/data/rows.npz" simulated-alpha=0.1 authenticated=false'

`LAPTOP` is a section with `address = "127.0.0.1:8100"` and `insecure = true`. The SuperLink keeps running in its terminal;
the variable lets its nodes read the file that a run names, which no other node does.
"""
