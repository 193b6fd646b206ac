"""Hugging Face `config.json` files as architectures: own readers, a family of models a file."""

from costmodel.huggingface.errors import ConfigError
from costmodel.huggingface.reader import MODEL_TYPES, Reading, read

__all__ = ["MODEL_TYPES", "ConfigError", "Reading", "read"]
