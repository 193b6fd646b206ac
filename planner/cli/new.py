"""`planner new`: a first problem file, from flags or from a few questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from planner.cli.failures import reported
from planner.cli.output import write_whole

if TYPE_CHECKING:
    from planner.draft import Draft, PoolAnswer

T = TypeVar("T")
STDOUT = "-"
REQUIRED = ("--model", "--tokens", "--seq-len", "--gpu")


@reported
def new(
    model: Annotated[str | None, typer.Option(help="A model card, or a path to a config.json.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Training tokens: 3T, 300B.")] = None,
    seq_len: Annotated[str | None, typer.Option(help="Tokens in a sequence: 4096.")] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="GPU:COUNTnodes@PRICE", help="A pool: H800:128nodes@2.00; may be repeated."),
    ] = None,
    global_batch: Annotated[
        str | None, typer.Option(help="Batch of a step: 4Mi tokens, or a range: 2M..6M tokens.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="The run ends within: 60 days.")] = None,
    budget: Annotated[str | None, typer.Option(help="The run costs at most: 2M USD.")] = None,
    objective: Annotated[
        str | None, typer.Option(help="cost or time; cost where there is a deadline, else time.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - for stdout.")
    ] = "problem.yaml",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> None:
    """Write a commented problem file.

    In a terminal it asks for what is not given. Exit codes: 0 written, 2 invalid or missing input.
    """
    refuse_to_overwrite(output, force)
    given = {"--model": model, "--tokens": tokens, "--seq-len": seq_len, "--gpu": gpu}
    options = {
        "--global-batch": global_batch,
        "--deadline": deadline,
        "--budget": budget,
        "--objective": objective,
    }
    draft, architecture = answered({**given, **options}, output)
    text = draft.text(architecture, "problem.yaml" if output == STDOUT else Path(output).name)
    check(text, output)
    if output == STDOUT:
        typer.echo(text, nl=False)
        return
    write_whole(Path(output), text)
    typer.echo(f"wrote {output}; next: planner solve {output}", err=True)


def interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def refuse_to_overwrite(output: str, force: bool) -> None:
    """Raises `InvalidInput` where a file would be lost, or cannot be."""
    from planner.errors import InvalidInput

    path = Path(output)
    if output == STDOUT or (force and not path.is_dir()):
        return
    if path.is_dir():
        raise InvalidInput(file=output, found="is a folder", accepted="a file to write, such as problem.yaml")
    if path.exists():
        raise InvalidInput(
            file=output, found="is there already", accepted="another --output, or --force to overwrite it"
        )


def answered(given: dict[str, Any], output: str) -> tuple[Draft, Any]:
    """The draft and the model it is about: flags first, questions for what is missing."""
    from planner import draft as read

    take = taker(given)
    architecture, model = take(
        "--model", "Model (a card, or a path to a config.json)", both(read.model_answer)
    )
    tokens = take("--tokens", "Training tokens", read.tokens_answer, "3T")
    seq_len = take("--seq-len", "Tokens in a sequence", read.seq_len_answer, "4096")
    batch = take(
        "--global-batch", "Batch of a step", lambda text: read.batch_answer(text, seq_len), read.USUAL_BATCH
    )
    pools = taken_pools(take, given, read.pool_answer)
    deadline = take("--deadline", "Deadline, such as 60 days (none if empty)", read.deadline_answer, "")
    budget = take("--budget", "Budget, such as 2M USD (none if empty)", read.budget_answer, "")
    draft = read.Draft(
        name=f"{architecture.name}_{tokens.removesuffix('tokens').strip()}".replace(" ", "_"),
        model=from_folder(model, output),
        tokens=tokens,
        seq_len=seq_len,
        pools=pools,
        global_batch=batch,
        deadline=deadline,
        budget=budget,
        objective=take("--objective", "", read.objective_answer),
    )
    return draft, architecture


def taker(given: dict[str, Any]) -> Callable[..., Any]:
    """Where answers come from. Raises `InvalidInput` where some are missing and nobody can be asked."""
    from planner.errors import InvalidInput

    missing = [flag for flag in REQUIRED if not given[flag]]
    if missing and not interactive():
        accepted = f"{', '.join(REQUIRED)} together; in a terminal `planner new` asks for what is missing"
        raise InvalidInput(file="new", found=f"missing {', '.join(missing)}", accepted=accepted)
    return asker(given) if missing else flags(given)


def both(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """What a text means, and the text."""
    return lambda text: (read(text), text.strip())


def flags(given: dict[str, Any]) -> Callable[..., Any]:
    """Answers from flags alone: what is not given has its default."""
    from planner.errors import Refused

    def take(flag: str, question: str, read: Callable[[str], T], default: Any = None) -> Any:
        text = given[flag] if given[flag] is not None else default
        if not text:
            return None
        try:
            return read(text)
        except Refused as refused:
            raise refused.of(flag) from None

    return take


def asker(given: dict[str, Any]) -> Callable[..., Any]:
    """Answers from flags, and from questions for what has none; a refused answer is asked for again."""
    from planner.errors import Refused

    told = flags(given)

    def take(flag: str, question: str, read: Callable[[str], T], default: Any = None) -> Any:
        if given[flag] is not None or not question:
            return told(flag, question, read, default)

        def usable(text: str) -> Any:
            if not text.strip():
                return None
            try:
                return read(text)
            except Refused as refused:
                hint = f" ({refused.hint})" if refused.hint else ""
                raise typer.BadParameter(f"{refused.found}; accepted: {refused.accepted}{hint}") from None

        return typer.prompt(
            question, default=default, value_proc=usable, err=True, show_default=bool(default)
        )

    return take


def taken_pools(
    take: Callable[..., Any], given: dict[str, Any], read: Callable[[str], PoolAnswer]
) -> tuple[PoolAnswer, ...]:
    """Each `--gpu`, or pools asked for until the answer is empty."""
    if given["--gpu"]:
        written, pools = given["--gpu"], []
        for text in written:
            given["--gpu"] = text
            pools.append(take("--gpu", "", read))
        given["--gpu"] = written
        return tuple(pools)
    given["--gpu"] = None
    pools = [take("--gpu", "GPUs (H800:128nodes@2.00 is up to 128 nodes at 2.00 USD/gpu-hour)", read)]
    while more := take("--gpu", "Other GPUs to compare with (none if empty)", read, ""):
        pools.append(more)
    return tuple(pools)


def from_folder(model: str, output: str) -> str:
    """A path to a config.json as the file will name it, relative to its own folder."""
    from planner.config_file import looks_like_path

    if output == STDOUT or not looks_like_path(model) or Path(model).is_absolute():
        return model
    relative = os.path.relpath(model, Path(output).parent)
    return relative if "/" in relative or relative.endswith(".json") else f"./{relative}"


def check(text: str, output: str) -> None:
    """Raises `InvalidInput` where the answers do not agree with each other."""
    from planner.problem import parse_problem
    from planner.yaml_file import parse

    folder = Path() if output == STDOUT else Path(output).parent
    parse_problem(parse(text, output), file="new", folder=folder)
