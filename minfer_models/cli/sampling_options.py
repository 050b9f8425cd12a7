"""The options of a sampler, declared once for every command that chooses tokens. Nothing heavy is imported here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer


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
        option = typer.Option(*(self.flags or (self.flag,)), help=self.help)
        return inspect.Parameter(
            self.setting,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.kind, option],
        )


OPTIONS = (
    SamplingOption(
        "temperature", float, 0.0, "Temperature; 0 takes the most likely token.", ("--temp", "--temperature")
    ),
    SamplingOption("top_k", int, 40, "Keep the K most likely tokens; 0: all."),
    SamplingOption("top_p", float, 0.95, "Keep the most likely tokens up to this probability; 1: all."),
    SamplingOption("min_p", float, 0.05, "Keep tokens this likely, relative to the likeliest."),
    SamplingOption(
        "seed",
        int | None,
        None,
        "Seed of the sampler; -1 or unset draws one, which is reported.",
        ("--seed", "-s"),
    ),
)
"""As in SamplingParams, but for the temperature: a command line that says nothing gets the most likely tokens."""


def takes_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of a sampler; its parameter `sampling` gets them as settings by name.

    The options stand where `sampling` does. They are unchecked: `check_sampling` imports numpy.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "sampling":
            parameters += [option.parameter() for option in OPTIONS]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        sampling = {option.setting: given.pop(option.setting) for option in OPTIONS}
        command(**given, sampling=sampling)

    changed: Any = run
    changed.__signature__ = signature.replace(parameters=parameters)
    changed.__annotations__ = {p.name: p.annotation for p in parameters}
    del changed.__wrapped__
    return run


def check_sampling(sampling: dict[str, Any]) -> None:
    """Raise BadParameter for a setting out of range, called as on the command line."""
    from minfer_models.sampling import SamplingError, SamplingParams

    try:
        SamplingParams(**sampling)
    except SamplingError as error:
        setting, _, rest = str(error).partition(" ")
        flag = next(option.flag for option in OPTIONS if option.setting == setting)
        raise typer.BadParameter(f"{flag} {rest}") from None
