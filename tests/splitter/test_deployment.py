"""The manifests and units under config/ are valid, and agree with one another and with the configuration."""

import configparser
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from crawler import config as configuration
from crawler.config.forms import host_port, named_addresses

CONFIG = Path(__file__).resolve().parents[2] / "config"
K8S = CONFIG / "k8s"
KUSTOMIZATION = yaml.safe_load((K8S / "kustomization.yaml").read_text())
# A release from the middle of the range that any vendor supports.
KUBERNETES = "1.30"


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((K8S / name).read_text())


STATEFUL_SET = load("statefulset.yaml")
POD = STATEFUL_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def environment() -> dict[str, str]:
    return {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}


@pytest.mark.parametrize("name", KUSTOMIZATION["resources"])
def test_every_manifest_is_valid_and_has_no_unknown_field(name: str) -> None:
    kubernetes_validate.validate(load(name), KUBERNETES, strict=True)


def test_the_schema_check_notices_a_misspelt_field() -> None:
    broken = load("disruption.yaml")
    broken["spec"]["maxUnavailble"] = broken["spec"].pop("maxUnavailable")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def test_the_kustomization_names_every_file_but_itself_and_the_secret() -> None:
    files = {path.name for path in K8S.iterdir()} - {"kustomization.yaml", "secret"}
    generated = [file for each in KUSTOMIZATION["configMapGenerator"] for file in each["files"]]
    assert files == {*KUSTOMIZATION["resources"], *generated}
    (secret,) = KUSTOMIZATION["secretGenerator"]
    assert secret["files"] == ["secret"]
    assert "/config/k8s/secret" in (CONFIG.parent / ".gitignore").read_text().splitlines()


def test_volumes_labels_and_ports_fit_together() -> None:
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]
    service, budget, network = (load(name) for name in ("service.yaml", "disruption.yaml", "network.yaml"))
    assert STATEFUL_SET["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert STATEFUL_SET["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert network["spec"]["podSelector"]["matchLabels"] == labels
    claims = STATEFUL_SET["spec"]["volumeClaimTemplates"]
    volumes = {each["name"]: each for each in [*POD["volumes"], *(claim["metadata"] for claim in claims)]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes.keys()
    assert volumes["secret"]["secret"]["secretName"] == KUSTOMIZATION["secretGenerator"][0]["name"]
    assert volumes["config"]["configMap"]["name"] == KUSTOMIZATION["configMapGenerator"][0]["name"]
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports


def test_the_peers_are_the_pods() -> None:
    peers = configuration_of_pod().splitter.peers
    addresses = named_addresses(peers)
    name, service = STATEFUL_SET["metadata"]["name"], STATEFUL_SET["spec"]["serviceName"]
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert addresses == {
        f"{name}-{ordinal}": (f"{name}-{ordinal}.{service}", ports["splitter"])
        for ordinal in range(STATEFUL_SET["spec"]["replicas"])
    }


def configuration_of_pod() -> configuration.Config:
    tree = configuration.read_file(K8S / "crawl.toml")
    for path, value in configuration.environment_overrides(environment()).items():
        configuration.set_key(tree, path, value)
    return configuration.convert(tree)


def test_the_configuration_of_a_pod_is_one() -> None:
    splitter = configuration_of_pod().splitter
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert Path(splitter.secret_file).parent == Path(mounts["secret"])
    assert host_port(splitter.listen)[1] == CONTAINER["ports"][0]["containerPort"]
    assert f"--config={mounts['config']}/crawl.toml" in CONTAINER["args"]
    assert f"--dir={mounts['crawl']}" in CONTAINER["args"]


def test_the_secret_file_is_readable_only_by_its_owner_and_group() -> None:
    """`read_secret` refuses a file that others may read."""
    (volume,) = [each for each in POD["volumes"] if each["name"] == "secret"]
    assert volume["secret"]["defaultMode"] & 0o007 == 0


def test_the_image_runs_as_the_user_of_the_pod() -> None:
    dockerfile = (CONFIG / "Dockerfile").read_text()
    user = re.search(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert user is not None
    context = POD["securityContext"]
    assert (int(user[1]), int(user[2])) == (context["runAsUser"], context["runAsGroup"])
    assert dockerfile.count("FROM python:3.11-slim-bookworm") == 2
    assert 'ENTRYPOINT ["crawler"]' in dockerfile
    assert CONTAINER["image"] == KUSTOMIZATION["images"][0]["name"] == "crawler"


def test_the_unit_starts_a_node_and_leaves_final_errors_alone() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CONFIG / "systemd" / "crawler@.service")
    service = unit["Service"]
    assert service["ExecStart"].startswith(
        "/opt/crawler/bin/crawler node --dir %S/crawler --name %i --config "
    )
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    name, _, source = service["LoadCredential"].partition(":")
    assert source == "/etc/crawler/secret"
    assert service["Environment"] == f"CRAWLER_SPLITTER__SECRET_FILE=%d/{name}"
