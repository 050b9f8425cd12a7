"""Chat templates: rendered in a sandbox, with the origin of every character known to the tokenizer.

Answers are split into reasoning, content and tool calls by what the same template tells of its model.
"""

from minfer_models.chat.answer import Answer, AnswerFormat, Piece
from minfer_models.chat.calls import ToolCall
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.splitting import AnswerSplitter, split_answer
from minfer_models.chat.template import ChatTemplate

__all__ = [
    "Answer",
    "AnswerFormat",
    "AnswerSplitter",
    "ChatTemplate",
    "ChatTemplateError",
    "Piece",
    "ToolCall",
    "split_answer",
]
