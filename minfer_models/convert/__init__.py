"""Hugging Face folders into GGUF files: names, rows, hyper-parameters, vocabulary and chat template."""

from minfer_models.convert.conversion import Conversion, convert, plan_conversion
from minfer_models.convert.errors import ConvertError

__all__ = ["Conversion", "ConvertError", "convert", "plan_conversion"]
