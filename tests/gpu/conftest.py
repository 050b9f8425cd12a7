"""GPU kernels run in Triton's interpreter here: it is chosen before the first of them is imported."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
