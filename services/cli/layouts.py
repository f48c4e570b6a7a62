"""`gemcutter data build`: which logs can be built, from which files, and where to get them.

Nothing heavy is imported here before a build starts: the texts are needed for `--help`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final, Literal

from features.errors import DataError
from services.cli.progress import Step

LayoutName = Literal[
    "complete-journey",
    "taobao-ad",
    "kuairand",
    "kuaivideo",
    "amazon-electronics",
    "criteo",
    "avazu",
]
COMPLETE_JOURNEY: Final = "complete-journey"
BUILD_HELP = """\
Build a log folder, with a commented schema.yaml to copy from.

complete-journey comes with an installed package. The others are made of your own copy of a public
data set: --raw is the folder with its files as they were published, unpacked. They may lie in
folders inside, and may end in .gz besides. What a layout lacks, and where its licence is, is said
at the top of its schema.yaml.

taobao-ad: raw_sample.csv, ad_feature.csv, user_profile.csv, behavior_log.csv;
https://tianchi.aliyun.com/dataset/56

kuairand, version 1K or Pure: log_*.csv, user_features*.csv, video_features_basic*.csv;
https://kuairand.com

kuaivideo (KuaiVideo_x1): train.csv, test.csv;
https://huggingface.co/datasets/reczoo/KuaiVideo_x1

amazon-electronics (AmazonElectronics_x1): train.csv, test.csv;
https://huggingface.co/datasets/reczoo/AmazonElectronics_x1

criteo (Display Advertising Challenge): train.txt;
https://www.kaggle.com/c/criteo-display-ad-challenge/data

avazu: train.csv; https://www.kaggle.com/c/avazu-ctr-prediction/data
"""


def build_layout(name: str, raw: Path | None, out: Path, *, step: Step) -> dict[str, Any]:
    """Make a log folder of a public data set's files, and give what was written.

    Raises:
        DataError: there is no folder, or a file, column or value is not what the layout says.
    """
    from foundation.datasets.layouts import LAYOUTS, convert

    layout = LAYOUTS[name]
    if raw is None:
        files = ", ".join(table.pattern for table in layout.tables)
        raise DataError(
            f"--layout {name}: expected --raw, the folder with {files}; get them from "
            f"{layout.source}"
        )
    report = convert(layout, raw, out, step.count)
    return {**dataclasses.asdict(report), "folder": str(report.folder)}
