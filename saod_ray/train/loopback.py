"""Ray Train's torch backend on one machine: what its workers find each other by listens on loopback alone.

torch's TCPStore binds its port on every interface, whatever host it is told. A socket that is bound already can be handed to
it instead.
"""

from __future__ import annotations

import importlib
import socket
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

from saod_ray.predict.gate import is_loopback


class LoopbackTorchConfig(TorchConfig):
    """Torch's process group, made by workers whose store listens where their cluster does."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """What Ray Train starts on the workers."""
        return _LoopbackBackend


class _LoopbackBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Prepare every worker, then make the process group."""
        worker_group.execute(bind_store_inside)
        super().on_start(worker_group, backend_config)


def bind_store_inside() -> None:
    """Let stores that this process makes for a loopback address listen there alone."""
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    make_store = rendezvous.TCPStore

    def bound(*args: Any, **options: Any) -> Any:
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
        return make_store(*args, **options)

    rendezvous.TCPStore = bound
