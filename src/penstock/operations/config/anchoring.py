"""Relative paths of a configuration: all of them are taken from the directory of the file, never from where a command was
started. A password's file, a certificate or a directory of binlogs is no exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from penstock.operations.config.model import Config


def anchored(config: Config, directory: Path) -> Config:
    """The same configuration with absolute paths. Plain paths of sinks and of the offload become `file://` URLs."""

    def url_of(place: str) -> str:
        return place if "://" in place else (directory / place).resolve().as_uri()

    sinks = {name: sink.model_copy(update={"url": url_of(sink.url)}) for name, sink in config.sinks.items()}
    log = config.log
    if log.offload is not None:
        log = log.model_copy(update={"offload": log.offload.model_copy(update={"url": url_of(log.offload.url)})})
    return config.model_copy(
        update={
            "state_dir": directory / config.state_dir,
            "source": _paths_anchored(config.source, directory),
            "sinks": sinks,
            "log": log,
        }
    )


def _paths_anchored(model: BaseModel, directory: Path) -> Any:
    """The model with every `Path` in it taken from the directory."""
    update: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, Path):
            update[name] = directory / value
        elif isinstance(value, BaseModel):
            update[name] = _paths_anchored(value, directory)
    return model.model_copy(update=update)
