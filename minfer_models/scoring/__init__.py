"""How well a model predicts a text, and how far its predictions are from another one's."""

from minfer_models.scoring.moments import Estimate, Moments
from minfer_models.scoring.score import Comparison, Score, compare, perplexity
from minfer_models.scoring.windows import ScoringError, Window, cut

__all__ = ["Comparison", "Estimate", "Moments", "Score", "ScoringError", "Window", "compare", "cut", "perplexity"]
