"""Checks what no linter knows about the files below deploy/: that ports, names, networks, times, settings and metrics fit together.

    check.py compose RESOLVED.json SETTINGS        the compose file as compose-go has resolved it, and the configurations beside it
    check.py chart RENDERED.yaml SETTINGS FOLDER   manifests of the chart; writes the configuration of the nodes into FOLDER
    check.py schemas FROM TO                       schemas of Kubernetes without the addresses by which they name each other, for kubeconform
    check.py metrics METRICS FILE...               each metric that a file names is one of a running node

SETTINGS is the output of `encke config show`, METRICS that of `/metrics`.
"""

import ipaddress
import json
import pathlib
import re
import sys
import tomllib

import yaml

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
found = []


def expect(holds, text):
    if not holds:
        found.append(text)


def settings_of(path):
    """The names of all settings, and their values."""
    lines = pathlib.Path(path).read_text().splitlines()
    pairs = (line.split(" = ", 1) for line in lines if " = " in line)
    return {name: value.split("  # ")[0] for name, value in pairs}


def check_environment(what, names, settings):
    for name in names:
        if name.startswith("ENCKE_") and name != "ENCKE_CONFIG":
            expect(name[len("ENCKE_"):].lower() in settings, f"{what}: {name} is no setting")


def seconds(text):
    """A time as compose writes it, such as 20s or 1m30s."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def image_environment():
    """The variables that the image sets."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = re.findall(r"\bENCKE_[A-Z_]+=\S+", text)
    return dict(pair.split("=", 1) for pair in pairs)


def check_compose(path, settings_path):
    settings = settings_of(settings_path)
    compose = json.loads(pathlib.Path(path).read_text())
    services, networks = compose["services"], compose["networks"]
    of_kind = lambda kind: {name for name in services if re.fullmatch(kind + r"-\d", name)}
    nodes, nats = of_kind("encke"), of_kind("nats")
    expect(len(nodes) == 3 and len(nats) == 3, f"three nodes and three NATS servers: {sorted(services)}")
    image = image_environment()
    check_environment("Dockerfile", image, settings)
    port = image["ENCKE_LISTEN"].rsplit(":", 1)[1]

    node_config = tomllib.loads((DEPLOY / "compose/encke.toml").read_text())
    drain_ms = int(node_config.get("drain_timeout_ms", settings["drain_timeout_ms"]))
    for name in nodes:
        service = services[name]
        check_environment(name, service["environment"], settings)
        grace = seconds(service["stop_grace_period"])
        expect(grace * 1000 > drain_ms + 5000, f"{name}: {grace} s are too short for a drain of {drain_ms} ms")
        volumes = [(volume["source"], volume["target"]) for volume in service["volumes"]]
        expect(volumes == [(name, image["ENCKE_DATA"])], f"{name}: its volume is {volumes}")
        for key, value in node_config["cluster"].items():
            expect(not key.endswith("_env") or value in service["environment"], f"{name}: {value} is not set")
        for key in node_config["api_keys"]:
            expect(key["key_env"] in service["environment"], f"{name}: {key['key_env']} is not set")
    for name in sorted(services):
        service = services[name]
        expect(service.get("read_only") is True, f"{name} can write to its root")
        expect(service.get("cap_drop") == ["ALL"], f"{name} has capabilities")
        expect(name == "haproxy" or not service.get("ports"), f"{name} is open to the host")

    front = [config["subnet"] for config in networks["front"]["ipam"]["config"]]
    expect(node_config["trusted_proxies"] == front, f"trusted_proxies are not the network of HAProxy: {front}")
    expect(ipaddress.ip_network(front[0]).is_private, "the network of HAProxy is public")
    internal = {name for name, network in networks.items() if network.get("internal")}
    for name in nodes | nats:
        expect(set(services[name]["networks"]) <= internal, f"{name} is in a network that reaches the host")
    expect(set(services["haproxy"]["networks"]) & set(services["encke-1"]["networks"]) == {"front"}, "HAProxy reaches more than `front`")

    nats_config = (DEPLOY / "compose/nats.conf").read_text()
    client_port = re.search(r"^port: (\d+)$", nats_config, re.M)[1]
    route_port = re.search(r"^    port: (\d+)$", nats_config, re.M)[1]
    urls = {f"nats://{name}:{client_port}" for name in nats}
    expect(set(node_config["cluster"]["servers"]) == urls, f"the nodes need {sorted(urls)}")
    routes = set(re.findall(r"nats://(\S+:\d+)", nats_config))
    expect(routes == {f"{name}:{route_port}" for name in nats}, f"routes: {sorted(routes)}")
    for name in nats:
        environment = services[name]["environment"]
        expect(environment["NATS_NAME"] == name, f"{name} has another name")
        for variable in re.findall(r"\$([A-Z_]+)", nats_config):
            expect(variable in environment, f"{name}: {variable} is not set")
        expect(services[name]["healthcheck"]["test"][-1].endswith("/healthz"), f"{name} has no health check")
        expect(re.search(r"^http: (\d+)$", nats_config, re.M)[1] in services[name]["healthcheck"]["test"][-1], f"{name}: another port is asked")

    haproxy = (DEPLOY / "compose/haproxy.cfg").read_text()
    servers = re.findall(r"^    server (\S+) (\S+) cookie (\S+)$", haproxy, re.M)
    expect(servers == [(name, f"{name}:{port}", name) for name in sorted(nodes)], f"servers of HAProxy: {servers}")
    bind = re.search(r"^    bind :(\d+)$", haproxy, re.M)[1]
    targets = [str(port["target"]) for port in services["haproxy"]["ports"]]
    expect(targets == [bind], f"HAProxy listens on {bind}, and {targets} are open")
    longest_ms = int(settings["hold_timeout_max_ms"])
    for side in ("client", "server"):
        timeout = seconds(re.search(rf"^    timeout {side} (\S+)$", haproxy, re.M)[1])
        expect(timeout * 1000 > longest_ms, f"timeout {side} of HAProxy: {timeout} s are shorter than a held request")


def check_chart(path, settings_path, folder):
    settings = settings_of(settings_path)
    manifests = [it for it in yaml.safe_load_all(pathlib.Path(path).read_text()) if it]
    of_kind = lambda kind: [it for it in manifests if it["kind"] == kind]
    [stateful] = of_kind("StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = {it["name"]: it.get("value") for it in container["env"]}
    check_environment("StatefulSet", environment, settings)

    drain_ms = int(environment["ENCKE_DRAIN_TIMEOUT_MS"])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = pod["terminationGracePeriodSeconds"]
    expect(grace * 1000 > pause * 1000 + drain_ms, f"{grace} s are too short for {pause} s and a drain of {drain_ms} ms")
    expect(int(environment["ENCKE_DRAIN_SPREAD_MS"]) <= drain_ms, "the reconnects are spread over more than the drain")

    scheme = "HTTPS" if "ENCKE_TLS_CERT" in environment else "HTTP"
    for probe, asked in {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}.items():
        get = container[probe]["httpGet"]
        expect((get["path"], get["scheme"]) == (asked, scheme), f"{probe} asks {get}")
    secure = container["securityContext"]
    expect(secure["readOnlyRootFilesystem"] and not secure["allowPrivilegeEscalation"], "the container may write or gain rights")
    expect(secure["capabilities"]["drop"] == ["ALL"] and pod["securityContext"]["runAsNonRoot"], "the container has rights")
    expect(not pod["automountServiceAccountToken"], "the pod has a token of Kubernetes")

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    expect(environment["ENCKE_LISTEN"].endswith(f":{ports['http']}"), "the port of the container is another one")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    selected = [(it["metadata"]["name"], it["spec"]["selector"]) for it in of_kind("Service")]
    selected += [(it["metadata"]["name"], it["spec"]["podSelector"]["matchLabels"]) for it in of_kind("NetworkPolicy")]
    selected += [(it["metadata"]["name"], it["spec"]["selector"]["matchLabels"]) for it in of_kind("PodDisruptionBudget")]
    for name, selector in selected:
        expect(selector.items() <= labels.items(), f"{name} selects other pods: {selector}")
    services = {it["metadata"]["name"] for it in of_kind("Service")}
    expect(stateful["spec"]["serviceName"] in services, f"serviceName is none of {services}")
    for monitor in of_kind("ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        matched = [it for it in of_kind("Service") if wanted <= it["metadata"]["labels"].items()]
        expect(len(matched) == 1, f"the ServiceMonitor selects {len(matched)} Services: each node would be scraped so often")
    for scaler in of_kind("HorizontalPodAutoscaler"):
        expect(scaler["spec"]["scaleTargetRef"]["name"] == stateful["metadata"]["name"], "the autoscaler has another target")
        expect("replicas" not in stateful["spec"], "the chart and the autoscaler both set the number of nodes")

    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {it["name"] for it in pod["volumes"]}
    volumes |= {it["metadata"]["name"] for it in stateful["spec"].get("volumeClaimTemplates", [])}
    expect(set(mounts) == volumes, f"mounts {sorted(mounts)}, volumes {sorted(volumes)}")
    expect(mounts["data"] == environment["ENCKE_DATA"], "the data are not on their volume")

    [config] = of_kind("ConfigMap")
    text = config["data"]["encke.toml"]
    parsed = tomllib.loads(text)
    folder = pathlib.Path(folder)
    named = [key["key_file"] for key in parsed.get("api_keys", [])]
    named += [path for key, path in parsed.get("cluster", {}).items() if key.endswith("_file")]
    for path in named:
        expect(any(path.startswith(f"{mount}/") for mount in mounts.values()), f"{path} is in no volume")
        stand_in = folder / path.lstrip("/").replace("/", "-")
        stand_in.write_text(f"secret-of-{path}\n")
        text = text.replace(path, str(stand_in))
    # The program would read them, and there are none here.
    text = re.sub(r"^credentials_file = .*\n", "", text, flags=re.M)
    for key, name in parsed.get("cluster", {}).items():
        expect(not key.endswith("_env") or name in environment, f"{name} is not set")
    (folder / "encke.toml").write_text(text)
    lines = [f"{name}={value}" for name, value in environment.items() if name.startswith("ENCKE_") and "TLS" not in name]
    (folder / "environment").write_text("\n".join(lines) + "\n")


def check_metrics(metrics, *paths):
    known = set(re.findall(r"^(encke_\w+)", pathlib.Path(metrics).read_text(), re.M))
    for path in paths:
        named = set(re.findall(r"\bencke_[a-z0-9_]+", pathlib.Path(path).read_text()))
        expect(named, f"{path} names no metric")
        for name in sorted(named - known):
            expect(False, f"{path}: a node has no metric {name}")


def write_schemas(source, target):
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    for path in pathlib.Path(source).glob("*.json"):
        schema = json.loads(path.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (target / path.name).write_text(json.dumps(schema))


{"compose": check_compose, "schemas": write_schemas, "chart": check_chart, "metrics": check_metrics}[sys.argv[1]](*sys.argv[2:])
for problem in found:
    print(problem, file=sys.stderr)
sys.exit(bool(found))
