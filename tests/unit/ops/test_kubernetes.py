"""The manifests for Kubernetes: valid for the oldest version that they need, and the same as docker-compose.yml."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from core.paths import CHECKOUT
from ops.containers import healthy
from tests.docs import blocks

FOLDER = CHECKOUT / "ops" / "containers" / "kubernetes"
PROCESSES = {
    *("collector-modbus", "collector-opcua", "collector-push", "maintenance", "notifier", "viewer", "writer"),
}
STARTED_BEFORE = ["certificate", "database", "migrate"]  # in this order
# The demo's plant; and `restore`, which is a component.
ONLY_IN_COMPOSE = {"restore", "simulator", "trust"}
FOLDERS_OF_THE_MACHINE = {"/etc/plantlog", "/mnt/archive", "/mnt/backup", "/run/secrets/tokens"}  # .env names them
_DEFINITIONS = json.loads(Path(__file__).with_name("kubernetes-1.29.json").read_text())["$defs"]


def _validate(manifest: dict[str, Any]) -> None:
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{manifest['kind']}"
    Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _DEFINITIONS}).validate(manifest)


@cache
def _manifests() -> dict[str, dict[str, Any]]:
    """Manifests that kustomization.yaml names, by kind."""
    resources = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {*resources, "kustomization.yaml", "restore"} == {path.name for path in FOLDER.iterdir()}
    found = [document for name in resources for document in yaml.safe_load_all((FOLDER / name).read_text())]
    assert len(found) == 4
    return {resource["kind"]: resource for resource in found}


def _pod() -> dict[str, Any]:
    pod: dict[str, Any] = _manifests()["StatefulSet"]["spec"]["template"]["spec"]
    return pod


def _containers() -> dict[str, dict[str, Any]]:
    pod = _pod()
    return {container["name"]: container for container in (*pod["initContainers"], *pod["containers"])}


@cache
def _compose() -> dict[str, Any]:
    """docker-compose.yml with the defaults of its variables; without what it includes and extends."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (CHECKOUT / "docker-compose.yml").read_text())
    compose: dict[str, Any] = yaml.safe_load(text)
    return compose


def _services() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in _compose()["services"].items() if name not in ONLY_IN_COMPOSE}


def _ports_of(rules: list[dict[str, Any]]) -> set[int]:
    return {number for rule in rules for number in range(rule["port"], rule.get("endPort", rule["port"]) + 1)}


@pytest.mark.parametrize("kind", ["Namespace", "NetworkPolicy", "Service", "StatefulSet"])
def test_manifests_are_valid(kind: str) -> None:
    _validate(_manifests()[kind])


@pytest.mark.parametrize("misspelt", ["restartpolicy", "readOnlyRootFileSystem", "storageClass"])
def test_misspelt_field_is_not_valid(misspelt: str) -> None:
    manifest = copy.deepcopy(_manifests()["StatefulSet"])
    {
        "restartpolicy": manifest["spec"]["template"]["spec"],
        "readOnlyRootFileSystem": manifest["spec"]["template"]["spec"]["containers"][2]["securityContext"],
        "storageClass": manifest["spec"]["volumeClaimTemplates"][0]["spec"],
    }[misspelt][misspelt] = "x"
    with pytest.raises(ValidationError, match=f"'{misspelt}' was unexpected"):
        _validate(manifest)


def test_containers_are_the_services_of_compose() -> None:
    pod = _pod()
    assert [container["name"] for container in pod["initContainers"]] == STARTED_BEFORE
    assert {entry["name"] for entry in pod["containers"]} == PROCESSES
    # Only the server goes on beside the processes, and it answers before the schema is upgraded.
    assert [container.get("restartPolicy") for container in pod["initContainers"]] == [None, "Always", None]
    assert _containers().keys() == _services().keys()
    for name, service in _services().items():
        container = _containers()[name]
        assert container["image"] == service["image"], name
        assert container["args"] == service["command"], name
        assert "command" not in container, name
        environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        assert environment == service.get("environment", {}), name
    seconds = [int(service.get("stop_grace_period", "0s")[:-1]) for service in _services().values()]
    assert pod["terminationGracePeriodSeconds"] == sum(set(seconds) - {0})


def test_component_restores_as_the_service_of_compose_does() -> None:
    """Where `certificate` is, whose secrets and volumes it has; the server comes next."""
    component = yaml.safe_load((FOLDER / "restore" / "kustomization.yaml").read_text())
    (patch,) = component["patches"]
    assert patch["target"] == {"kind": "StatefulSet", "name": _manifests()["StatefulSet"]["metadata"]["name"]}
    copied, name, arguments = yaml.safe_load(patch["patch"])
    place = "/spec/template/spec/initContainers"
    assert copied == {"op": "copy", "from": f"{place}/0", "path": f"{place}/1"}
    assert name == {"op": "replace", "path": f"{place}/1/name", "value": "restore"}
    service = _compose()["services"]["restore"]
    assert service["entrypoint"] == ["python", "-P", "-m", *arguments["value"]]
    assert {"op": "replace", "path": f"{place}/1/args"}.items() < arguments.items()
    certificate = _containers()["certificate"]
    assert certificate["image"] == service["image"]
    assert certificate["volumeMounts"] == _containers()["maintenance"]["volumeMounts"]


def test_volumes_are_those_of_compose() -> None:
    claims = {template["metadata"]["name"] for template in _manifests()["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    temporary_volumes = {one["name"]: one["emptyDir"] for one in _pod()["volumes"] if "emptyDir" in one}
    # On a disk, a temporary folder would have no sticky bit, and be refused.
    in_memory = {name for name, one in temporary_volumes.items() if one["medium"] == "Memory"}
    assert claims == _compose()["volumes"].keys() - {"simulator", "tls"}  # a certificate is issued at each start
    for name, service in _services().items():
        shared: set[tuple[str, str, bool]] = set()
        for one in service["volumes"]:
            if isinstance(one, dict):
                assert one["target"] in FOLDERS_OF_THE_MACHINE, name
            else:
                volume, target, *mode = one.split(":")
                shared |= {(volume, target, mode == ["ro"])} if volume in _compose()["volumes"] else set()
        mounts = {
            (mount["name"], mount["mountPath"], mount.get("readOnly", False))
            for mount in _containers()[name]["volumeMounts"]
        }
        of_claims = {mount for mount in mounts if mount[0] in {*claims, "tls"}}
        assert of_claims == shared or (name == "certificate" and of_claims > shared)
        if name != "database":
            assert ("plant", "/etc/plantlog", True) in mounts, name
            assert ("tags", "/etc/plantlog/tags", True) in mounts, name
        # What no other process needs to keep.
        temporary = {one.partition(":")[0] for one in service.get("tmpfs", ())} | {"/tmp"}
        temporary |= {"/dev/shm"} if "shm_size" in service else set()
        assert temporary <= {path for volume, path, read_only in mounts if volume in in_memory and not read_only}, name


def test_each_container_sees_the_secrets_that_its_service_does() -> None:
    volumes = {volume["name"]: volume["secret"] for volume in _pod()["volumes"] if "secret" in volume}
    for volume in volumes.values():
        assert volume["secretName"] == "plantlog"
        assert volume["defaultMode"] == 0o440  # others may not read them
    for name, service in _services().items():
        secrets = {
            one["target"] if isinstance(one, dict) else f"/run/secrets/{one}": (
                one["source"] if isinstance(one, dict) else one
            )
            for one in service.get("secrets", ())
        }
        mounted = {
            f"{mount['mountPath']}/{item['path']}": item["key"]
            for mount in _containers()[name]["volumeMounts"]
            if mount["name"] in volumes
            for item in volumes[mount["name"]]["items"]
        }
        assert mounted == secrets or (name == "certificate" and mounted.items() > secrets.items())


def test_ports_are_those_of_compose_and_of_metrics() -> None:
    published = {int(port.rpartition(":")[2]) for service in _services().values() for port in service.get("ports", ())}
    service, policy = _manifests()["Service"]["spec"], _manifests()["NetworkPolicy"]["spec"]
    metrics = {name: int(str(healthy.page(name)).split(":")[2].partition("/")[0]) for name in PROCESSES}
    ports = {service_port["name"]: service_port["port"] for service_port in service["ports"]}
    assert metrics.items() < ports.items()
    assert set(ports.values()) - set(metrics.values()) == published
    open_to_all, of_the_namespace, of_monitoring = policy["ingress"]
    assert open_to_all.keys() == {"ports"}
    assert of_the_namespace["from"] == [{"podSelector": {}}]
    assert _ports_of(open_to_all["ports"]) | _ports_of(of_the_namespace["ports"]) == published
    assert list(of_monitoring["from"][0]) == ["namespaceSelector"]
    assert _ports_of(of_monitoring["ports"]) == set(metrics.values())


def test_plant_is_reached_only_where_the_policy_names_it() -> None:
    policy = _manifests()["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names, plant = policy["egress"]
    assert _ports_of(names["ports"]) == {53}
    assert plant["to"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]  # of RFC 5737, which nobody has
    labels = _manifests()["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels == _manifests()["Service"]["spec"]["selector"]
    assert _manifests()["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_probes_are_the_health_check_of_the_image(name: str) -> None:
    container = _containers()[name]
    page = str(healthy.page(name))
    pages = {
        kind: "http://127.0.0.1:{port}{path}".format(**container[f"{kind}Probe"]["httpGet"])
        for kind in ("liveness", "readiness")
        if f"{kind}Probe" in container
    }
    live = f"{page.removesuffix('/live')}/live"
    assert pages == {"liveness": live} | ({} if page == live else {"readiness": page})


def test_database_is_probed_as_compose_does() -> None:
    test = _services()["database"]["healthcheck"]["test"]
    assert ["CMD", *_containers()["database"]["startupProbe"]["exec"]["command"]] == test


def test_pod_is_unprivileged() -> None:
    assert _manifests()["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    pod = _pod()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    dockerfile = (CHECKOUT / "ops" / "containers" / "image" / "Dockerfile").read_text()
    ids = set(re.findall(r"(?m)^ARG PLANTLOG_[UG]ID=(\d+)$", dockerfile))
    assert {str(pod["securityContext"][key]) for key in ("runAsUser", "runAsGroup", "fsGroup")} == ids
    assert pod["automountServiceAccountToken"] is False
    for name, container in _containers().items():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }, name
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name


def test_there_is_a_single_writer() -> None:
    spec = _manifests()["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    assert "updateStrategy" not in spec  # the default ends the former pod first
    assert all(template["spec"]["accessModes"] == ["ReadWriteOnce"] for template in spec["volumeClaimTemplates"])


def test_every_volume_is_mounted_and_every_mount_has_a_volume() -> None:
    spec = _manifests()["StatefulSet"]["spec"]
    names = [volume["name"] for volume in _pod()["volumes"]]
    names += [template["metadata"]["name"] for template in spec["volumeClaimTemplates"]]
    assert len(names) == len(set(names))
    assert {mount["name"] for container in _containers().values() for mount in container["volumeMounts"]} == set(names)
    (alias,) = _pod()["hostAliases"]
    assert alias == {"ip": "127.0.0.1", "hostnames": ["database"]}


def test_documented_kustomization_names_what_there_is() -> None:
    (text,) = [
        block.text for block in blocks("text") if block.page == "docs/containers.md" and "resources:" in block.text
    ]
    documented = yaml.safe_load(text)
    assert [Path(resource).parts[1:] for resource in documented["resources"]] == [
        ("plantlog", *FOLDER.relative_to(CHECKOUT).parts)
    ]
    assert {f"{image['name']}:local" for image in documented["images"]} == {
        container["image"] for container in _containers().values()
    }
    (patch,) = documented["patches"]
    assert patch["patch"].startswith("- ")  # kustomize takes what begins with a bracket for JSON
    (change,) = yaml.safe_load(patch["patch"])
    place: Any = _manifests()[patch["target"]["kind"]]
    for part in change["path"].split("/")[1:]:
        place = place[int(part) if isinstance(place, list) else part]
    assert place == "192.0.2.0/24"
