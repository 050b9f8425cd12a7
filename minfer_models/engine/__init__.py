"""The engine: a model on its backends, and sequences of tokens running through it."""

from minfer_models.engine.engine import Engine, Logits
from minfer_models.engine.model import Model
from minfer_models.engine.options import EngineError, EngineOptions
from minfer_models.engine.rows import Rows
from minfer_models.engine.sequence import ContextError, TokenSequence

__all__ = ["ContextError", "Engine", "EngineError", "EngineOptions", "Logits", "Model", "Rows", "TokenSequence"]
