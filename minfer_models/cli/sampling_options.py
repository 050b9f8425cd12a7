"""The options of a sampler, declared once for every command that chooses tokens. Nothing heavy is imported here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from minfer_models.cli.groups import OptionGroup, option


@dataclass(frozen=True, slots=True)
class SamplingOption:
    """A setting of SamplingParams on the command line."""

    setting: str
    kind: Any
    default: Any
    help: str
    flags: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Its name on the command line: the setting's, where it has no shorter one."""
        return self.flags[0] if self.flags else f"--{self.setting.replace('_', '-')}"

    def parameter(self) -> inspect.Parameter:
        """The parameter of a command."""
        declared = typer.Option(*(self.flags or (self.flag,)), help=self.help)
        return option(self.setting, Annotated[self.kind, declared], self.default)


OPTIONS = (
    SamplingOption(
        "temperature", float, 0.0, "Temperature; 0 takes the most likely token.", ("--temp", "--temperature")
    ),
    SamplingOption("top_k", int, 40, "Keep the K most likely tokens; 0: all."),
    SamplingOption("top_p", float, 0.95, "Keep the most likely tokens up to this probability; 1: all."),
    SamplingOption("min_p", float, 0.05, "Keep tokens this likely, relative to the likeliest; 0: all."),
    SamplingOption("typical_p", float, 1.0, "Keep the most typical tokens up to this probability; 1: all."),
    SamplingOption("top_n_sigma", float, 0.0, "Keep logits within N standard deviations of the largest; 0: all."),
    SamplingOption("xtc_probability", float, 0.0, "How often top choices are left out; 0: never."),
    SamplingOption("xtc_threshold", float, 0.1, "What is a top choice: tokens this likely; above 0.5: none."),
    SamplingOption("dynatemp_range", float, 0.0, "How far the temperature follows the entropy; 0: fixed."),
    SamplingOption("dynatemp_exponent", float, 1.0, "How it follows: the exponent of the normalized entropy."),
    SamplingOption("repeat_penalty", float, 1.0, "Divides logits of recent tokens of prompt and text; 1: off."),
    SamplingOption("repeat_last_n", int, 64, "How many tokens are recent; -1: all, 0: none."),
    SamplingOption("presence_penalty", float, 0.0, "Taken from logits of generated tokens, -2 to 2."),
    SamplingOption("frequency_penalty", float, 0.0, "Taken from logits per time a token was generated, -2 to 2."),
    SamplingOption("dry_multiplier", float, 0.0, "Penalty for continuing a repetition; 0: off."),
    SamplingOption("dry_base", float, 1.75, "How the penalty grows with each repeated token."),
    SamplingOption("dry_allowed_length", int, 2, "The shortest repetition that is penalized."),
    SamplingOption("dry_penalty_last_n", int, -1, "Tokens in which repetitions are looked for; -1: all."),
    SamplingOption(
        "dry_sequence_breakers",
        list[str] | None,
        None,
        'A text that ends repetitions; give it again for more, none for no text. Unset: newline : " *',
        ("--dry-sequence-breaker", "--dry-sequence-breakers"),
    ),
    SamplingOption("mirostat", int, 0, "Keep the surprise near a target, version 1 or 2; 0: off."),
    SamplingOption("mirostat_tau", float, 5.0, "Mirostat's target in bits."),
    SamplingOption("mirostat_eta", float, 0.1, "Mirostat's learning rate."),
    SamplingOption(
        "logit_bias", list[str] | None, None, "ID=BIAS added to a token's logit, -inf: never. Give it again for more."
    ),
    SamplingOption(
        "seed", int | None, None, "Seed of the sampler; -1 or unset draws one, which is reported.", ("--seed", "-s")
    ),
)
"""As in SamplingParams, but for the temperature: a command line that says nothing gets the most likely tokens."""


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """What the options say, lists of texts read; what isn't said about those keeps its default."""
    biases, breakers = given.pop("logit_bias"), given.pop("dry_sequence_breakers")
    if biases:
        given["logit_bias"] = dict(_bias(text) for text in biases)
    if breakers:
        given["dry_sequence_breakers"] = () if breakers == ["none"] else tuple(breakers)
    return given


def _bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise typer.BadParameter(f"--logit-bias is {text!r}, expected ID=BIAS, such as 15=-1.5 or 15=-inf") from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of SamplingParams, checked; one that is out of range is called as on the command line."""
    settings = _settings(dict(given))

    from minfer_models.sampling import SamplingError, SamplingParams

    try:
        SamplingParams(**settings)
    except SamplingError as error:
        setting, _, rest = str(error).partition(" ")
        flag = next(option.flag for option in OPTIONS if option.setting == setting)
        raise typer.BadParameter(f"{flag} {rest}") from None
    return settings


SAMPLING = OptionGroup("sampling", [each.parameter() for each in OPTIONS], _read)
"""A command's parameter `sampling`: settings by name."""
