"""Chat templates: rendered in a sandbox, with the origin of every character known to the tokenizer."""

from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "ChatTemplateError"]
