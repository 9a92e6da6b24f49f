"""Ray Train's torch backend on one machine: the store that workers find each other by listens on loopback alone.

torch's TCPStore binds its port on every interface, whatever its host. It also accepts a socket that is already bound.
"""

from __future__ import annotations

import importlib
import socket
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

from saod_ray.engine.cluster import is_loopback


class LoopbackTorchConfig(TorchConfig):
    """Torch's process group, whose store listens on the interface of the cluster."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """The backend that Ray Train starts on the workers."""
        return _LoopbackBackend


class _LoopbackBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Patch torch on every worker, then create the process group."""
        worker_group.execute(bind_store_inside)
        super().on_start(worker_group, backend_config)


def bind_store_inside() -> None:
    """Make the stores that this process creates for a loopback address listen there alone."""
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    create_store = rendezvous.TCPStore

    def create_bound_store(*args: Any, **options: Any) -> Any:
        arguments = {**dict(zip(("host_name", "port", "world_size", "is_master"), args, strict=False)), **options}
        if (
            arguments.get("is_master")
            and is_loopback(arguments["host_name"])
            and arguments.get("master_listen_fd") is None
        ):
            family = socket.AF_INET6 if ":" in arguments["host_name"] else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((arguments["host_name"], arguments["port"]))
            options["master_listen_fd"] = listener.detach()
        return create_store(*args, **options)

    rendezvous.TCPStore = create_bound_store
