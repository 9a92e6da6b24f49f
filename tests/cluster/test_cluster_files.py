"""The cluster files, checked offline with Ray's validation, with KubeRay's schema, and for what both miss."""

from __future__ import annotations

import copy
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import saod_ray

ROOT = Path(__file__).parents[2]
CLUSTERS = ["cluster.yaml", "examples/cluster/gcp.yaml"]
RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}
SCHEMA = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text())


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def problems(config: dict[str, Any]) -> list[str]:
    """Mistakes in a cluster file that Ray's own validation accepts."""
    types, limit = config["available_node_types"], config["max_workers"]
    workers = {name: node for name, node in types.items() if name != config["head_node_type"]}
    messages = [
        f"{name}: unknown resource {key}"
        for name, node in types.items()
        for key in node["resources"].keys() - RESOURCES
    ]
    messages += [f"{name}: above the limit of {limit}" for name, node in workers.items() if node["max_workers"] > limit]
    messages += [f"{name}: runs while idle" for name, node in workers.items() if node["min_workers"]]
    if not any(node["resources"].get("GPU") for node in workers.values()):
        messages.append("no GPU")
    if len({node["priority"] for node in workers.values()}) < len(workers):
        messages.append("two types with the same priority")
    return messages


def validate(config: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(copy.deepcopy(config)))


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_accepts_the_cluster(name: str) -> None:
    validate(load(name))
    assert problems(load(name)) == []


def _misspelt(config: dict[str, Any]) -> None:
    config["idle_timeout_minute"] = 5


def _no_resources(config: dict[str, Any]) -> None:
    del config["available_node_types"]["gpu-spot"]["resources"]


def _no_such_head(config: dict[str, Any]) -> None:
    config["head_node_type"] = "haed"


@pytest.mark.parametrize("spoil", [_misspelt, _no_resources, _no_such_head])
def test_ray_refuses_a_spoilt_cluster(spoil: Callable[[dict[str, Any]], None]) -> None:
    config = load("cluster.yaml")
    spoil(config)
    with pytest.raises((ValueError, jsonschema.ValidationError)):
        validate(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resources": {"CPU": 8, "GPUS": 1}}, "gpu-spot: unknown resource GPUS"),
        ({"max_workers": 9}, "gpu-spot: above the limit of 8"),
        ({"min_workers": 1}, "gpu-spot: runs while idle"),
        ({"priority": 0}, "two types with the same priority"),
    ],
)
def test_what_ray_misses_is_found(changes: dict[str, Any], message: str) -> None:
    config = load("cluster.yaml")
    config["available_node_types"]["gpu-spot"].update(changes)
    validate(config)
    assert message in problems(config)


@pytest.mark.parametrize("name", CLUSTERS)
def test_spot_is_preferred_and_on_demand_is_bounded(name: str) -> None:
    types = load(name)["available_node_types"]
    spot, on_demand = types["gpu-spot"], types["gpu-on-demand"]
    assert "spot" in json.dumps(spot["node_config"]).lower()
    assert "spot" not in json.dumps(on_demand["node_config"]).lower()
    assert spot["priority"] > on_demand["priority"]
    assert on_demand["max_workers"] < spot["max_workers"]
    assert spot["resources"] == on_demand["resources"], "the same demand must fit both"


@pytest.mark.parametrize("name", CLUSTERS)
def test_nothing_is_installed_on_nodes_and_the_dashboard_stays_inside(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config

    config = prepare_config(load(name))
    assert not any(config[f"{who}setup_commands"] for who in ("", "head_", "worker_"))
    start = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in start and "0.0.0.0" not in start
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start


def launched_workers(failed: dict[str, float], gpus: int) -> dict[str, int]:
    """How many workers of each type Ray's scheduler starts for `gpus` actors that need one GPU each."""
    from ray.autoscaler._private.util import prepare_config
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    config = AutoscalingConfig(prepare_config(load("cluster.yaml")), skip_content_hash=True)
    demand = [ResourceRequestUtil.make({"GPU": 1, "CPU": 1})] * gpus
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=config.get_node_type_configs(),
        max_num_nodes=config.get_max_num_nodes(),
        resource_requests=ResourceRequestUtil.group_by_count(demand),
        recoverable_resource_availabilities=failed,
    )
    launched = ResourceDemandScheduler().schedule(request).to_launch
    return {node.instance_type: node.count for node in launched if node.instance_type != "head"}


def test_ray_starts_spot_nodes_and_others_where_spot_has_just_failed() -> None:
    assert launched_workers({}, gpus=3) == {"gpu-spot": 3}
    assert launched_workers({"gpu-spot": 0.0}, gpus=2) == {"gpu-on-demand": 2}
    assert launched_workers({"gpu-spot": 0.0}, gpus=20) == {
        "gpu-on-demand": 2,
        "gpu-spot": 7,
    }  # max_num_nodes counts the head


def test_kuberay_accepts_the_job() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(load("jobs/rayjob.yaml"), SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "entryPoint"], "python run.py"),
        (["spec", "rayClusterSpec", "enableInTreeAutoscaling"], "yes"),
        (["spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-cpus"], 0),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "minReplica"], 0),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "template", "spec", "containers", 0, "resources", "limits", "cpu"], "7 cores"),
        (["spec", "rayClusterSpec", "authOptions", "mode"], "none"),
    ],
)  # fmt: skip
def test_kuberay_refuses_a_spoilt_job(path: list[Any], value: Any) -> None:
    job = load("jobs/rayjob.yaml")
    place = job
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, SCHEMA)


def test_the_kubernetes_job_scales_from_zero_and_runs_what_ray_job_submit_runs() -> None:
    spec = load("jobs/rayjob.yaml")["spec"]
    cluster = spec["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is True
    for group in cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert yaml.safe_load(spec["runtimeEnvYAML"]) == load("jobs/runtime_env.yaml")
    assert cluster["authOptions"]["mode"] == "token"
    assert cluster["rayVersion"] == _pins()["ray"]
    _, script, *options = shlex.split(spec["entrypoint"])
    assert (ROOT / "jobs" / Path(script).relative_to("/home/ray/jobs")).exists()
    _check_options(options)


def _check_options(options: list[str]) -> None:
    """The command line takes these options."""
    from saod_ray.cli import find_command

    command, _ = find_command("run")
    values = command.make_context("run", list(options)).params
    assert values["use_case"] == "gen" and values["store"].startswith("s3://") and values["actors"] == "1:8"


def test_one_image_everywhere_with_our_version() -> None:
    images = {load(name)["docker"]["image"] for name in CLUSTERS}
    images |= set(re.findall(r"image: (\S+)", (ROOT / "jobs/rayjob.yaml").read_text()))
    (image,) = images
    assert image.rpartition(":")[2] == f"{saod_ray.__version__}-cuda"


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_what_the_image_is_made_of_exists() -> None:
    text = (ROOT / "Dockerfile").read_text()
    ignore = (ROOT / ".dockerignore").read_text().split()
    copied = [source for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for source in line.split()]
    assert {"constraints.txt", "pyproject.toml", "saod_ray", "jobs"} <= set(copied)
    assert all((ROOT / source).exists() for source in copied)
    assert {f"!{source}" for source in copied} == {line for line in ignore if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.search(r"'\.\[(.+?)\]'", text)
    assert extras and set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    assert re.search(r"^FROM python:3\.11-", text, re.M) and project["requires-python"] == ">=3.11"
    assert "torch" in _pins() and "RAY_AUTH_MODE=token" in text
    assert {project["readme"], *project["license-files"]} <= set(copied), "the build needs them"
