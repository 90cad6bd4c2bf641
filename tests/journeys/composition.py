"""The services of `compose.yaml` as commands that run here: the same programs and settings without
containers.

Owns reading the file, filling in its variables, and replacing what differs outside a container: host names,
ports and paths. Everything else reaches the process as it is written.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.processes import EASEL, ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<how>:-|:\?)(?P<rest>[^${}]*))?\}")


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Fill in `${NAME}`, `${NAME:-default}` and `${NAME:?message}` as Compose does, from the innermost
    outwards.
    """

    def value(found: re.Match[str]) -> str:
        name, how, rest = found["name"], found["how"], found["rest"]
        if variables.get(name):
            return variables[name]
        if how == ":?":
            raise KeyError(rest)
        return rest if how else ""

    while (next_text := _VARIABLE.sub(value, text)) != text:
        text = next_text
    return text


@dataclass
class Composition:
    """The services of the file. `places` maps host names inside the containers, such as `postgres:5432`, to
    addresses here.
    """

    folder: Path
    variables: dict[str, str]
    places: dict[str, str] = field(default_factory=dict[str, str])
    services: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
        for name, service in self.services.items():
            if (service.get("command") or [""])[0] == "easel" and "--port" in service["command"]:
                port = service["command"][service["command"].index("--port") + 1]
                self.places[f"{name}:{port}"] = f"127.0.0.1:{free_port()}"

    def environment(self, service: str) -> dict[str, str]:
        written = {
            name: filled(str(value), self.variables)
            for name, value in self.services[service].get("environment", {}).items()
        }
        for inside, outside in self.places.items():
            written = {name: value.replace(inside, outside) for name, value in written.items()}
        if "EASEL_DATA" in written:
            written["EASEL_DATA"] = str(self.folder / "data")
        if "EASEL_WORKER_PORT" in written:
            written["EASEL_WORKER_PORT"] = str(
                free_port()
            )  # each container has its own port of that number; here they share one machine
        return written

    def command(self, service: str) -> tuple[str, ...]:
        program, *arguments = self.services[service]["command"]
        if program == "easel":
            return (*EASEL, *self._listening_here(service, arguments))
        for volume in self.services[service].get("volumes", []):
            source, target, *_ = volume.split(":")
            arguments = [
                str(self._configuration(source, service)) if argument == target else argument
                for argument in arguments
            ]
        own = self.folder / service
        own.mkdir(exist_ok=True)
        for mount in self.services[service].get("tmpfs", []):
            arguments = [str(own) if argument == mount.split(":")[0] else argument for argument in arguments]
        return (program, *arguments)

    def _listening_here(self, service: str, arguments: list[str]) -> list[str]:
        if "--port" in arguments:
            port_at, host_at = arguments.index("--port") + 1, arguments.index("--host") + 1
            host, port = self.places[f"{service}:{arguments[port_at]}"].split(":")
            arguments = list(arguments)
            arguments[host_at], arguments[port_at] = host, port
        return arguments

    def _configuration(self, source: str, service: str) -> Path:
        """Return the file that is mounted into the container, with our addresses in it."""
        text = (ROOT / source).read_text()
        for inside, outside in self.places.items():
            text = text.replace(inside, outside)
        inside_port = self.services[service]["ports"][0].rpartition(":")[2]
        self.places[f"{service}:{inside_port}"] = f"127.0.0.1:{free_port()}"
        text, replaced = re.subn(
            rf"listen {inside_port}\b", f"listen {self.places[f'{service}:{inside_port}']}", text
        )
        assert replaced == 1, f"{source} does not listen on {inside_port}"
        place = self.folder / os.path.basename(source)  # noqa: PTH119 - a name in a YAML file
        place.write_text(text)
        return place
