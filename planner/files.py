"""Files and folders that results go to: files are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from planner.errors import InvalidInput


def usable_folder(folder: Path) -> Path:
    """The folder, made if it is not there. Raises `InvalidInput`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InvalidInput(file=str(folder), found="is a file", accepted="a folder for the results") from None
    except OSError as error:
        raise InvalidInput(
            file=str(folder), found=f"cannot be made: {error.strerror}", accepted="a folder"
        ) from None
    return folder


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes beside the file and renames, so that nobody ever reads half of it. Raises `InvalidInput`."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(
            file=str(path), found=f"cannot be written: {error.strerror}", accepted="a folder you may write to"
        ) from None
