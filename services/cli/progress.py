"""Progress bars for long work, and plain lines in their place where there is no terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Step:
    """One running step: call `advance` with how far it is."""

    def __init__(self, bar: Progress | None, console: Console, title: str) -> None:
        self._bar, self._console, self._title = bar, console, title
        self._task = bar.add_task(title, total=1.0, detail="") if bar else None
        self._said_frac = 0.0

    def advance(self, done_frac: float, detail: str = "") -> None:
        """Show that `done_frac` (0 to 1) of the step is done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done_frac, detail=detail)
        elif done_frac - self._said_frac >= 0.25:
            self._said_frac = done_frac
            self._console.print(f"  {self._title}: {100 * done_frac:.0f} % {detail}".rstrip())

    def count(self, what: str, num_rows: int) -> None:
        """Show how many rows of something are done, where nobody knows how many there are."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=None, detail=f"{what}: {num_rows:,} rows")


class Steps:
    """The steps of a run, their bars and how long each took.

    Args:
        console: where to show them; without a terminal, plain lines are printed.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[Step]:
        """Run a block as a named step."""
        started = time.monotonic()
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[detail]}", style="dim"),
            )
            with Progress(*columns, console=self.console, transient=True) as bar:
                yield Step(bar, self.console, title)
        else:
            self.console.print(f"{title} ...")
            yield Step(None, self.console, title)
        self.seconds[name] = time.monotonic() - started
        self.console.print(f"[green]done[/green] {title} ({self.seconds[name]:.1f} s)")
