"""JSON schemas for Kubernetes manifests: ``python kubernetes_schemas.py FOLDER MODULE@VERSION…``.

The schemas are extracted from the official ones in the Go modules of Kubernetes and JobSet, and made strict: an unknown
field is an error. kubeconform finds the files by their names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

#: Where kubeconform finds the schema of a resource in the folder.
LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"
KINDS = {
    "configmap-v1": "io.k8s.api.core.v1.ConfigMap",
    "job-batch-v1": "io.k8s.api.batch.v1.Job",
    "secret-v1": "io.k8s.api.core.v1.Secret",
    "service-v1": "io.k8s.api.core.v1.Service",
}
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SWAGGER = Path("api/openapi-spec/swagger.json")
CUSTOM_RESOURCES = Path("config/components/crd/bases")


def main(folder: Path, modules: list[str]) -> None:
    """Write the schemas that `modules` contain."""
    folder.mkdir(exist_ok=True)
    found = [_unpacked(module) for module in modules]
    (definitions,) = [
        strict(json.loads((each / SWAGGER).read_text())["definitions"]) for each in found if (each / SWAGGER).exists()
    ]
    schemas = {name: {"$ref": f"#/definitions/{kind}"} for name, kind in KINDS.items()}
    for path in (path for each in found for path in (each / CUSTOM_RESOURCES).glob("*.yaml")):
        schemas |= dict(_custom(yaml.safe_load(path.read_text())))
    for name, schema in schemas.items():
        needed = {each: definitions[each] for each in sorted(_needed(schema, definitions))}
        (folder / f"{name}.json").write_text(json.dumps({**schema, "definitions": needed}))
    print(f"{folder}: {', '.join(sorted(schemas))}")


def strict(schema: Any) -> Any:
    """The same schema, refusing fields that it does not name, in the dialect that kubeconform reads."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if schema.get("$ref", "").endswith(".Quantity"):
        return {"type": ["string", "number"]}
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**closed, **{name: strict(each) for name, each in schema.items()}}


def _unpacked(module: str) -> Path:
    done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        sys.exit(f"go mod download {module}: {answer.get('Error') or done.stderr.strip()}")
    return Path(answer["Dir"])


def _custom(definition: dict[str, Any]) -> Any:
    """The schemas of a custom resource, by name."""
    spec = definition["spec"]
    kind, group = spec["names"]["kind"].lower(), spec["group"].split(".")[0]
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        # The schema of a custom resource does not define the metadata, which all resources have in common.
        schema["properties"]["metadata"] = {"$ref": f"#/definitions/{METADATA}"}
        yield f"{kind}-{group}-{version['name']}", schema


def _needed(schema: Any, definitions: dict[str, Any]) -> set[str]:
    """The names of all definitions that a schema refers to."""
    known: set[str] = set()
    ahead = [schema]
    while ahead:
        names = set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(ahead.pop()))) - known
        known |= names
        ahead += [definitions[name] for name in names]
    return known


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
