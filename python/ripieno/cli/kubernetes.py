"""The command `ripieno kubernetes`: the manifest that runs a program as ranks in the pods of a Kubernetes cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import yaml

from ripieno._checks import SECONDS_MAX, THREADS_MAX
from ripieno.cli.options import aliased_option
from ripieno.errors import InputError
from ripieno.files.sources import input_errors, size_bytes
from ripieno.launch.kubernetes.manifest import Manifest

RESTARTS = 3
# Plain words. All other strings are quoted, because YAML readers differ on y, 1e3 and 0o17.
_PLAIN = re.compile(r"[A-Za-z/][-\w./:@]+", re.ASCII)


class OptionPair(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """Two words with a separator, such as NAME=VALUE."""

    name = "pair"

    def __init__(self, between: str) -> None:
        self.between = between

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the two words."""
        if isinstance(value, tuple):
            return value
        first, between, second = value.partition(self.between)
        if not first or not between:
            self.fail(f"{value!r}: expected two values separated by {self.between!r}", param, ctx)
        return first, second


@click.command("kubernetes")
@click.option("-n", "--workers", type=int, required=True, metavar="COUNT", help="Number of pods, with one rank each.")
@click.option("--image", required=True, help="Image of the pods, with `ripieno` installed.")
@click.option("-m", "module", is_flag=True, help="SCRIPT names a module of the image, as in python -m.")
@click.option("--script-in-image", is_flag=True, help="SCRIPT is a path in the image, and not part of the manifest.")
@click.option("--name", help="Name of the Job. Default: the name of the script.")
@click.option("--namespace", help="Namespace of the Job. Default: the namespace of its creator.")
@click.option("--cpu", metavar="AMOUNT", help="Cores of each pod, as request and limit: 2, 500m.")
@click.option("--memory", metavar="AMOUNT", help="Memory of each pod, as request and limit: 4Gi.")
@click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    metavar="COUNT",
    help="Threads of each rank. Default: the number of cores of the pod.",
)
@click.option("--port", type=int, default=29500, show_default=True, help="Port of rank 0 during the rendezvous.")
@click.option(
    "--image-pull-policy",
    "pull_policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    help="Pull policy of the image.",
)
@click.option(
    "-e",
    "--env",
    "environment",
    type=OptionPair("="),
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable of the script.",
)
@click.option(
    "--node-selector", type=OptionPair("="), multiple=True, metavar="LABEL=VALUE", help="Required label of the nodes."
)
@click.option("--spread", multiple=True, metavar="LABEL", help="Spread the pods over the values of this node label.")
@click.option(
    "--racks", "rack_label", metavar="LABEL", help="Pod label that names the rack: topology.kubernetes.io/zone"
)
@click.option(
    "--claim",
    "claims",
    type=OptionPair(":"),
    multiple=True,
    metavar="NAME:PATH",
    help="A PersistentVolumeClaim and its mount path.",
)
@click.option("--secret", metavar="NAME", help="Existing Secret that contains the `token`. Default: a new one.")
@aliased_option(
    "--rendezvous-timeout",
    "rendezvous_timeout_s",
    aliases=["--meet-within"],
    type=click.IntRange(1, SECONDS_MAX),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that ranks wait for missing pods.",
)
@click.option("--jobset", is_flag=True, help="Write a JobSet, which restarts all ranks when one fails.")
@click.option(
    "--restarts",
    type=click.IntRange(0, 2**31 - 1),
    metavar="COUNT",
    help=f"With --jobset: maximum number of restarts. Default: {RESTARTS}.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubernetes_command(
    script: str, name: str | None, script_in_image: bool, jobset: bool, restarts: int | None, **options: Any
) -> None:
    """Write a manifest for kubectl that runs SCRIPT as the ranks of a Kubernetes Job, one in each pod.

    ARGUMENTS are passed to the script; write arguments that begin with a hyphen after --.

    The manifest contains an Indexed Job, the Service for the pods' addresses, the script, and the job's token: keep the
    file secret, or store the token in a Secret of your own (--secret).

    \b
    Example:
      umask 077
      ripieno kubernetes train.py --workers 16 --image registry.example/ripieno -- --epochs 3 > job.yaml
      kubectl create -f job.yaml
    """
    if restarts is not None and not jobset:
        raise InputError("--restarts is for --jobset: a Job does not restart its pods")
    if jobset and restarts is None:
        restarts = RESTARTS
    for option, pairs in (("--env", "environment"), ("--node-selector", "node_selector"), ("--claim", "claims")):
        options[pairs] = _different(option, options[pairs])
    path = Path(script)
    text = None if script_in_image or options["module"] else _read(path)
    target = script if text is None else path.name
    stem = script.rpartition(".")[2] if options["module"] else path.stem
    name = name or re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    manifest = Manifest(name=name, target=target, script=text, restarts=restarts, **options)
    click.echo(_to_yaml(manifest), nl=False)


def _different(option: str, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the pairs. Raise an error if two have the same first word."""
    for number, (first, _) in enumerate(pairs):
        if first in dict(pairs[:number]):
            raise InputError(f"{option}: {first} is given twice")
    return dict(pairs)


def _read(path: Path) -> str:
    # Check the size first: opening a pipe without a writer would block.
    size_bytes(str(path))
    try:
        with input_errors(str(path)):
            return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected text in UTF-8; put it into the image and use --script-in-image") from None


def _to_yaml(manifest: Manifest) -> str:
    holds = ", with the job's token: keep it secret" if manifest.secret is None else ""
    head = f"# {manifest.workers} ranks of {manifest.target}{holds}\n# kubectl create -f FILE\n"
    # Write no document marker at the start: the comment alone would be a document.
    return head + yaml.dump_all(manifest.resources(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes scripts as blocks, and quotes all strings that some YAML reader could take for another type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated labels in full."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
