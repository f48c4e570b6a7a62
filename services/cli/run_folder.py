"""Where a run keeps its parts."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, `runs/quickstart` by default.

    Every step writes its own part and reads those before it, so any step can be run again alone.
    """

    root: Path

    @property
    def data(self) -> Path:
        """The data set: schema, splits, Parquet tables."""
        return self.root / "data"

    @property
    def fm(self) -> Path:
        """The foundation model's checkpoint."""
        return self.root / "fm"

    @property
    def transfer_log(self) -> Path:
        """What the frozen foundation model wrote."""
        return self.root / "transfer_log"

    @property
    def rows(self) -> Path:
        """The vertical models, one folder each, and their figures."""
        return self.root / "verticals"

    @property
    def bundle(self) -> Path:
        """The served vertical."""
        return self.root / "bundle"

    @property
    def logs(self) -> Path:
        """Output of the processes that the run started."""
        return self.root / "logs"

    @property
    def report_json(self) -> Path:
        """Everything measured."""
        return self.root / "report.json"

    @property
    def report_html(self) -> Path:
        """The same for people."""
        return self.root / "report.html"
