"""Models made here: seeded random weights in any shape and type, and a real file re-expressed as another architecture.

They stand in for models that tests and measurements need and that nobody ships: every architecture, size, weight
type and head arrangement. Their text is noise; their arithmetic is that of a real model.
"""

from minfer_models.arch.rope import llama3_factors
from minfer_models.synthetic.mixes import TYPE_NAMES
from minfer_models.synthetic.model import SyntheticModel
from minfer_models.synthetic.reencode import reencode
from minfer_models.synthetic.reexpress import llama_as_qwen2
from minfer_models.synthetic.shapes import SHAPES, NamedShape
from minfer_models.synthetic.vocabulary import byte_vocabulary, hf_vocabulary
from minfer_models.synthetic.weights import write_model

__all__ = [
    "SHAPES",
    "TYPE_NAMES",
    "NamedShape",
    "SyntheticModel",
    "byte_vocabulary",
    "hf_vocabulary",
    "llama3_factors",
    "llama_as_qwen2",
    "reencode",
    "write_model",
]
