"""How models write calls of tools: one file per notation, and finding a template's."""

from minfer_models.chat.calls.call import ToolCall
from minfer_models.chat.calls.notations import NOTATIONS, Calls, notation_shown

__all__ = ["NOTATIONS", "Calls", "ToolCall", "notation_shown"]
