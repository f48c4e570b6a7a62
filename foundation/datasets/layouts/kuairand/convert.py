"""KuaiRand's logs and features as a log; also what was shown at random, which `is_rand` tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foundation.datasets.layouts.layout import Layout, row_numbers
from foundation.datasets.layouts.logwriter import LogWriter
from foundation.datasets.layouts.rawfiles import RawFiles, RawTable, integers, numbers, text

_SIGNALS = ("is_click", "long_view", "is_like", "is_follow", "is_comment", "is_forward", "is_hate")
_DURATIONS = ("play_time_ms", "duration_ms")
_LOGS = RawTable(
    pattern="log_*.csv",
    columns=("user_id", "video_id", "time_ms", "tab", "is_rand", *_SIGNALS, *_DURATIONS),
    has_many=True,
)
_USERS = RawTable(
    pattern="user_features*.csv",
    columns=(
        "user_id",
        "user_active_degree",
        "is_lowactive_period",
        "is_live_streamer",
        "is_video_author",
        "follow_user_num_range",
        "fans_user_num_range",
        "friend_user_num_range",
        "register_days_range",
        *(f"onehot_feat{place}" for place in range(18)),
    ),
)
_VIDEOS = RawTable(
    pattern="video_features_basic*.csv",
    columns=(
        "video_id",
        "author_id",
        "video_type",
        "upload_type",
        "music_id",
        "music_type",
        "tag",
        "video_duration",
    ),
)


def _write(files: RawFiles, log: LogWriter) -> None:
    for batch in files.batches(_LOGS):
        at_ms = integers(batch, "time_ms")
        watched_ms = pc.max_element_wise(pc.fill_null(integers(batch, "play_time_ms"), 0), 0)
        rows = pa.table(
            {
                "example_id": row_numbers(log.num_rows["impressions"], len(batch)),
                "user_id": integers(batch, "user_id"),
                "video_id": integers(batch, "video_id"),
                "time_ms": at_ms,
                # What came of a video is known when the user leaves it.
                "left_at_ms": pc.add(at_ms, watched_ms),
                "tab": text(batch, "tab"),
                "is_rand": text(batch, "is_rand"),
                **{name: integers(batch, name) for name in _SIGNALS},
                **{name: integers(batch, name) for name in _DURATIONS},
            }
        )
        log.add("impressions", rows)
        clicks = rows.filter(np.asarray(pc.fill_null(pc.equal(rows["is_click"], 1), False)))
        log.add("click", clicks)
    for batch in files.batches(_USERS):
        categories = {name: text(batch, name) for name in _USERS.columns[1:]}
        log.add("users", {"user_id": integers(batch, "user_id"), **categories})
    for batch in files.batches(_VIDEOS):
        categories = {name: text(batch, name) for name in _VIDEOS.columns[1:-2]}
        videos = {"video_id": integers(batch, "video_id"), **categories}
        videos["video_duration"] = numbers(batch, "video_duration")
        # Tags are a list such as "12,65", the main one first.
        videos["tag"] = pc.replace_substring_regex(text(batch, "tag"), ",.*$", "")
        log.add("videos", videos)


LAYOUT = Layout(
    name="kuairand",
    source="https://kuairand.com",
    tables=(_LOGS, _USERS, _VIDEOS),
    template=Path(__file__).parent,
    write=_write,
)
