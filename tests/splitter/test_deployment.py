"""Test that manifests and units in config/ are valid, and agree with each other and with the configuration."""

import configparser
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from crawler import config as configuration
from crawler.config.forms import host_port, named_addresses

CONFIG = Path(__file__).resolve().parents[2] / "config"
K8S = CONFIG / "k8s"
KUSTOMIZATION = yaml.safe_load((K8S / "kustomization.yaml").read_text())
SCHEMAS = json.loads((CONFIG.parent / "tests" / "data" / "kubernetes" / "schemas.json").read_text())


def load_all(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((K8S / name).read_text()))


def load(name: str) -> dict[str, Any]:
    """Return the first manifest in a file."""
    return load_all(name)[0]


STATEFUL_SET = load("statefulset.yaml")
POD = STATEFUL_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def validate(manifest: dict[str, Any]) -> None:
    schema = SCHEMAS["kinds"][f"{manifest['apiVersion']}/{manifest['kind']}"]
    jsonschema.Draft202012Validator({**schema, "$defs": SCHEMAS["$defs"]}).validate(manifest)


def environment() -> dict[str, str]:
    return {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}


@pytest.mark.parametrize("name", KUSTOMIZATION["resources"])
def test_every_manifest_is_valid_and_has_no_unknown_field(name: str) -> None:
    for manifest in load_all(name):
        validate(manifest)


def test_the_schema_check_notices_a_misspelt_field() -> None:
    broken = load("disruption.yaml")
    broken["spec"]["maxUnavailble"] = broken["spec"].pop("maxUnavailable")
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_the_kustomization_names_all_files_except_itself_and_the_operators() -> None:
    files = {path.name for path in K8S.iterdir()} - {"kustomization.yaml", "secret", "contact.env"}
    generated = [file for each in KUSTOMIZATION["configMapGenerator"] for file in each.get("files", [])]
    assert files == {*KUSTOMIZATION["resources"], *generated}
    (secret,) = KUSTOMIZATION["secretGenerator"]
    assert secret["files"] == ["secret"]
    ignored = (CONFIG.parent / ".gitignore").read_text().splitlines()
    assert {"/config/k8s/secret", "/config/k8s/contact.env"} <= set(ignored)


def test_the_contact_must_be_set() -> None:
    """The kustomization needs a file that is not in the repository, and no other file sets a contact."""
    (contact,) = [each for each in KUSTOMIZATION["configMapGenerator"] if "envs" in each]
    assert contact["envs"] == ["contact.env"]
    assert CONTAINER["envFrom"] == [{"configMapRef": {"name": contact["name"]}}]
    assert configuration_of_pod().identity.contact == ""
    line = re.search(r"echo (\S+)=(\S+) > config/k8s/contact.env", (K8S / "kustomization.yaml").read_text())
    assert line is not None
    assert [*configuration.environment_settings({line[1]: line[2]})] == [
        (line[1], "identity.contact", line[2])
    ]


def test_a_pod_has_no_rights_and_writes_to_its_volumes_only() -> None:
    assert POD["securityContext"]["runAsNonRoot"] and POD["securityContext"]["runAsUser"] > 0
    context = CONTAINER["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    writable = {mount["mountPath"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/crawl", "/tmp"}


def test_the_page_server_accepts_the_names_by_which_it_is_reached() -> None:
    serve = configuration_of_pod().serve
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert host_port(serve.address) == ("0.0.0.0", ports["pages"])
    addresses = named_addresses(serve.peers)
    assert {name: host for name, (host, _) in addresses.items()} == {
        name: host for name, (host, _) in named_addresses(configuration_of_pod().splitter.peers).items()
    }
    assert {port for _, port in addresses.values()} == {ports["pages"]}
    pages = load_all("service.yaml")[1]
    assert {host for host, _ in addresses.values()} < set(serve.names)
    assert pages["metadata"]["name"] in serve.names
    assert pages["spec"]["selector"] == STATEFUL_SET["spec"]["selector"]["matchLabels"]
    assert pages["spec"]["ports"] == [{"name": "pages", "port": ports["pages"], "targetPort": "pages"}]
    allowed = {port["port"] for rule in load("network.yaml")["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == ports.keys()


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
    for _, path, value in configuration.environment_settings(environment()):
        configuration.set_key(tree, path, value)
    return configuration.convert(tree)


def test_the_configuration_of_a_pod_matches_its_manifest() -> None:
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


def test_the_unit_starts_a_node_and_does_not_restart_it_after_final_errors() -> None:
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
