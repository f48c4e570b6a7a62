"""What is in a log folder, in figures: for a person, before anything is trained on it.

The folder is read exactly as training reads it. Nothing here is needed to train or to serve.

Cost: memory for a part of each column, a count of each vocabulary, the distinct users and items,
and a sample of 400,000 impressions; some passes over the mapped columns.
"""

from features.datacheck.check import check_dataset
from features.datacheck.report import DataReport

__all__ = ["DataReport", "check_dataset"]
