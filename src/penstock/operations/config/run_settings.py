"""From a configuration to the settings of a run."""

from __future__ import annotations

from typing import Any

from penstock.operations.config.model import Config
from penstock.sources.settings import process_settings
from penstock.supervisor.settings import RunSettings


def run_settings(config: Config, *, once: bool) -> RunSettings:
    """The settings of `penstock.supervisor.supervisor.run` for this configuration."""
    return RunSettings(
        state_dir=config.state_dir,
        source=process_settings(config.source),
        changefeeds={name: changefeed_settings(config, name) for name in config.sinks},
        log=config.log.model_dump(mode="json", by_alias=True),
        spark=dict(config.spark),
        once=once,
    )


def changefeed_settings(config: Config, name: str) -> dict[str, Any]:
    """One sink's settings as delivery and the driver read them: the sink's own, and the source's filter of tables."""
    tables = config.source.tables
    return {
        **config.sinks[name].model_dump(mode="json", exclude_none=True),
        "source_include": list(tables.include),
        "source_exclude": list(tables.exclude),
    }
