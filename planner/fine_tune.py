"""The section `fine_tune:`: a fine-tune of the trained model, to compare what it costs with the run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, model_validator

from costmodel.architecture import Architecture
from costmodel.closed_form.plan_arithmetic import training_days
from costmodel.closed_form.states import state_bytes
from costmodel.fine_tune import adapter_tune_flops
from costmodel.flops import flops_6nd
from costmodel.parameters import active_parameters, total_parameters
from costmodel.units import DAY
from planner.errors import Refused
from planner.narrowing import one_of
from planner.quantities import Count, Duration, Price, Strict, Tokens

METHODS = ("full", "lora")


class FineTune(Strict):
    """One fine-tune of the trained model, by how long it takes or by its tokens."""

    gpus: Count
    """GPUs of the plan's type."""
    takes: Duration | None = None
    """How long it takes. Either this or `tokens`."""
    tokens: Tokens | None = None
    """Tokens it trains on, at the MFU of the plan."""
    method: Annotated[Literal["full", "lora"] | None, BeforeValidator(one_of(METHODS))] = None
    """With `tokens`: `full` (the default) trains all weights, `lora` adapters beside frozen ones."""
    price: Price | None = None
    """USD/gpu-hour; what the run pays unless given."""

    @model_validator(mode="after")
    def _said_once(self) -> FineTune:
        if (self.takes is None) == (self.tokens is None):
            found = (
                "neither takes nor tokens is given" if self.takes is None else "takes and tokens are given"
            )
            raise Refused(found, "one of them: takes: 48 h, or tokens: 1B", "", ("takes",))
        if self.method is not None and self.tokens is None:
            raise Refused("method is given, but no tokens", "tokens: 1B beside it", "", ("method",))
        return self

    def days(self, architecture: Architecture, peak: float, mfu: float) -> float:
        """Days it takes; with tokens C/(N*F*MFU), C = 6*P*D, or 4*P*D with adapters."""
        if self.takes is not None:
            return self.takes / DAY
        assert self.tokens is not None, "one of them is given"
        flops = adapter_tune_flops if self.method == "lora" else flops_6nd
        work = flops(active_parameters(architecture), self.tokens)
        return float(training_days(work, self.gpus, peak, mfu))

    def states(self, architecture: Architecture) -> float:
        """Bytes of weights and, where all of them are trained, gradients and optimizer; 0 if not known."""
        if self.tokens is None:
            return 0.0
        frozen = {"gradients": 0, "optimizer": 0} if self.method == "lora" else {}
        return float(state_bytes(total_parameters(architecture), **frozen))
