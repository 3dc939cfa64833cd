"""The `native` engine: layers in memory over immutable, memory-mapped, hash-indexed runs (docs/formats/checkpoint.md)."""

from penstock.state.engines.native.engine import NativeEngine

__all__ = ["NativeEngine"]
