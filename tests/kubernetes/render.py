"""Render a chart, and check what comes out against the schemas of Kubernetes.

It is a program for an environment of its own, which has Helm as a library and the schemas
(``deploy/requirements-kubernetes.txt``)::

    python render.py CHART < CASES > RESULTS

Cases are a JSON list of values. Results are a list of objects: ``lint``, the messages of Helm;
``error``, why it cannot be rendered, or null; ``manifests``, the objects; ``problems``, those that
schemas have with them; ``unknown``, kinds that have no schema; ``notes``, the text for the user.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import helm_python  # type: ignore[import-not-found]
import kubernetes_validate  # type: ignore[import-not-found]
import yaml  # type: ignore[import-untyped]

VERSIONS = ("1.30", "1.37")
"""The oldest that the chart takes, and the newest with schemas."""


def render(path: str, values: dict[str, Any]) -> dict[str, Any]:
    """Lint and render a chart with values; see above for what is returned."""
    report = helm_python.lint(path, values, strict=True)
    result: dict[str, Any] = {
        "lint": [f"{m['path']}: {m['error']}" for m in report["messages"] if m["severity"] > 1],
        "error": None,
        "manifests": [],
        "problems": [],
        "unknown": [],
        "notes": "",
    }
    try:
        with helm_python.Chart.load(path) as chart:
            chart.validate_schema(values)
            texts = chart.render(values, name="demo", namespace="losses", is_install=True)
    except helm_python.HelmError as e:
        return result | {"error": str(e)}
    for name, text in texts.items():
        if name.endswith("NOTES.txt"):
            result["notes"] = text
        else:
            result["manifests"] += [each for each in yaml.safe_load_all(text) if each]
    for manifest in result["manifests"]:
        _check(manifest, result)
    return result


def _check(manifest: dict[str, Any], result: dict[str, Any]) -> None:
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            result["unknown"].append(manifest["kind"])
        except kubernetes_validate.ValidationError as e:
            place = "/".join(map(str, e.path))
            result["problems"].append(f"{manifest['kind']} {version} {place}: {e.message}")


if __name__ == "__main__":
    json.dump([render(sys.argv[1], values) for values in json.load(sys.stdin)], sys.stdout)
