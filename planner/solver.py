"""CP-SAT, loaded when it is first needed and without what is not used of it.

`ortools.sat.python.cp_model` imports pandas for its interface to series, which takes longer than all the
rest of it. Until that interface is touched a stand-in takes the place of pandas; then it is pandas itself.
Of the functions of its library few are called: each is looked up when it is, where the system can do that.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "ortools.sat.python.cp_model"


class _Pandas(ModuleType):
    """Stands in for pandas; what is asked of it is answered by pandas."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("pandas"), name)


@contextmanager
def _looked_up_late() -> Iterator[None]:
    """Libraries that are loaded inside look their functions up at the first call of each."""
    if not hasattr(sys, "setdlopenflags"):  # not on Windows
        yield
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags & ~os.RTLD_NOW | os.RTLD_LAZY)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)


def load_cp_model() -> Any:
    """The module `ortools.sat.python.cp_model`."""
    if NAME in sys.modules or "pandas" in sys.modules:
        return importlib.import_module(NAME)
    stand_in = _Pandas("pandas")
    # Names that annotations mention while the module is read.
    mentioned = {name: type(name, (), {}) for name in ("Index", "Series")}
    vars(stand_in).update(mentioned)
    sys.modules["pandas"] = stand_in
    try:
        with _looked_up_late():
            return importlib.import_module(NAME)
    finally:
        del sys.modules["pandas"]
        for name in mentioned:
            delattr(stand_in, name)


def one_worker() -> Any:
    """A solver with one worker and a fixed seed: the same problem gets the same plan on every machine."""
    solver = load_cp_model().CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    return solver


def element(model: Any, index: Any, values: NDArray[np.int64], name: str) -> Any:
    """A variable that is the value of a column at an index."""
    variable = model.new_int_var(int(values.min()), int(values.max()), name)
    model.add_element(index, values.tolist(), variable)
    return variable
