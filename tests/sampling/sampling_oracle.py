"""The pipeline of a sampler written down a second time, a token at a time, in plain Python: slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from minfer_models.sampling import SamplingParams

F32 = np.float32


@dataclass
class Step:
    """What a choice may depend on."""

    params: SamplingParams
    decodable: int
    prompt: Sequence[int] = ()
    generated: Sequence[int] = ()
    allowed: set[int] | None = None
    spell: Callable[[int], bytes] = field(default=lambda token_id: b"%d" % token_id)
    mu: float = 0.0

    def coin(self) -> float:
        """The second number of the step's own generator."""
        generator = np.random.Generator(np.random.Philox(key=self.params.seed, counter=len(self.generated)))
        return generator.random(2)[1]


def softmax(logits: dict[int, float], temperature: float = 1.0) -> dict[int, float]:
    top = max(logits.values())
    weights = {i: math.exp((x - top) / temperature) for i, x in logits.items()}
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def edited(row: Sequence[float], step: Step) -> dict[int, float]:
    """Constraint, bias and penalties: what is left of the row, -inf gone; each edit rounds to float32."""
    p = step.params
    logits = {i: F32(row[i]) for i in range(step.decodable) if step.allowed is None or i in step.allowed}
    for i, bias in p.logit_bias.items():
        if i in logits:
            logits[i] += F32(bias)
    before = [*step.prompt, *step.generated]
    if p.repeat_last_n:
        for i in set(before if p.repeat_last_n == -1 else before[-p.repeat_last_n :]) & logits.keys():
            logits[i] = logits[i] / F32(p.repeat_penalty) if logits[i] > 0 else logits[i] * F32(p.repeat_penalty)
    for i in set(step.generated) & logits.keys():
        count = list(step.generated).count(i)
        logits[i] -= F32(p.presence_penalty) + F32(count) * F32(p.frequency_penalty)
    for i, length in repetitions(before, p, step.spell).items():
        if i in logits:
            penalty = p.dry_multiplier * p.dry_base ** (length - p.dry_allowed_length)
            if logits[i] > -np.inf:
                logits[i] = F32(max(float(logits[i]) - penalty, -3.4028234663852886e38))
    return {i: float(x) for i, x in logits.items() if x > -np.inf}


def behind_breaker(ids: Sequence[int], breakers: Sequence[str], spell: Callable[[int], bytes]) -> int:
    """Tokens behind the one in which the last breaker ends."""
    pieces = [spell(i) for i in ids]
    ends = np.cumsum([len(piece) for piece in pieces])
    text = b"".join(pieces)
    last = -1
    for breaker in breakers:
        at = text.rfind(breaker.encode())
        if at >= 0:
            last = max(last, next(t for t, end in enumerate(ends) if end >= at + len(breaker.encode())))
    return len(ids) - 1 - last


def repetitions(ids: Sequence[int], p: SamplingParams, spell: Callable[[int], bytes]) -> dict[int, int]:
    """DRY by trying every earlier position and every length."""
    if p.dry_multiplier == 0 or p.dry_penalty_last_n == 0:
        return {}
    reach = behind_breaker(ids, p.dry_sequence_breakers, spell)
    ids = list(ids if p.dry_penalty_last_n == -1 else ids[-p.dry_penalty_last_n :])
    found: dict[int, int] = {}
    for at in range(len(ids) - 1):
        length = 0
        while length <= at and length < reach and ids[at - length] == ids[len(ids) - 1 - length]:
            length += 1
        follower = ids[at + 1]
        if any(b.encode() in spell(follower) for b in p.dry_sequence_breakers):
            continue
        if length >= p.dry_allowed_length:
            found[follower] = max(found.get(follower, 0), length)
    return found


def distribution(row: Sequence[float], step: Step) -> dict[int, float]:
    """Id to probability."""
    p, logits = step.params, edited(row, step)
    if not logits:
        return {}
    if p.temperature == 0:
        return {min(logits, key=lambda i: (-logits[i], i)): 1.0}
    if p.mirostat:
        return mirostat(logits, step)
    if p.top_n_sigma > 0:
        lowest = max(logits.values()) - p.top_n_sigma * float(np.std(list(logits.values())))
        logits = {i: x for i, x in logits.items() if x >= lowest}
    if p.top_k:
        logits = first(logits, p.top_k)
    if p.typical_p < 1:
        logits = typical(logits, p.typical_p)
    if p.top_p < 1:
        chances, reached, keep = softmax(logits), 0.0, 0
        for i in ranked(logits):
            if keep and reached >= p.top_p:
                break
            reached, keep = reached + chances[i], keep + 1
        logits = first(logits, keep)
    if p.min_p > 0:
        lowest = max(logits.values()) + math.log(p.min_p)
        logits = {i: x for i, x in logits.items() if x >= lowest}
    if p.xtc_probability and step.coin() < p.xtc_probability:
        chances = softmax(logits)
        likely = [i for i in ranked(logits) if chances[i] >= p.xtc_threshold]
        logits = {i: x for i, x in logits.items() if i not in likely[:-1]}
    return softmax(logits, temperature(logits, p)) if temperature(logits, p) else {ranked(logits)[0]: 1.0}


def ranked(logits: dict[int, float]) -> list[int]:
    return sorted(logits, key=lambda i: (-logits[i], i))


def first(logits: dict[int, float], n: int) -> dict[int, float]:
    return {i: logits[i] for i in sorted(ranked(logits)[:n])}


def entropy(chances: dict[int, float]) -> float:
    return -math.fsum(c * math.log(c) for c in chances.values() if c > 0)


def typical(logits: dict[int, float], mass: float) -> dict[int, float]:
    chances = softmax(logits)
    middle = entropy(chances)
    kept: list[int] = []
    # rounded: equally typical tokens go by their id
    for i in sorted(logits, key=lambda i: (round(abs(-math.log(chances[i] or 5e-324) - middle), 9), i)):
        if kept and math.fsum(chances[k] for k in kept) >= mass:
            break
        kept.append(i)
    return {i: logits[i] for i in sorted(kept)}


def temperature(logits: dict[int, float], p: SamplingParams) -> float:
    if p.dynatemp_range == 0 or len(logits) == 1:
        return p.temperature
    low, high = max(0.0, p.temperature - p.dynatemp_range), p.temperature + p.dynatemp_range
    return low + (high - low) * (entropy(softmax(logits)) / math.log(len(logits))) ** p.dynatemp_exponent


def mirostat(logits: dict[int, float], step: Step) -> dict[int, float]:
    p = step.params
    chances = softmax(logits, p.temperature)
    order = ranked(logits)
    if p.mirostat == 2:
        kept = [i for i in order if -math.log2(chances[i] or 5e-324) <= step.mu] or order[:1]
    else:
        kept = order[: zipf_k([math.log(chances[i] or 5e-324) for i in order[:101]], step)]
    total = math.fsum(chances[i] for i in kept)
    return {i: chances[i] / total for i in sorted(kept)}


def zipf_k(logs: list[float], step: Step) -> int:
    """The k of version 1, from natural logarithms of the first probabilities."""
    n = step.decodable
    t = [math.log((i + 2) / (i + 1)) for i in range(len(logs) - 1)]
    b = [logs[i] - logs[i + 1] for i in range(len(logs) - 1)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t) if t else 1.0
    if s <= 0 or n == 1:
        return n
    eps = s - 1
    k = (2**step.mu / math.log(n)) ** (1 / s) if abs(eps) < 1e-9 else (eps * 2**step.mu / (1 - n**-eps)) ** (1 / s)
    return min(n, max(1, round(k)))
