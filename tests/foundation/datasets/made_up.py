"""Made-up rows in the public layouts: their file names and columns, and nothing of their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

SHANGHAI = timezone(timedelta(hours=8))
Rows = Sequence[Sequence[object]]


def seconds(year: int, month: int, day: int, hour: int = 0, zone: timezone = UTC) -> int:
    return int(datetime(year, month, day, hour, tzinfo=zone).timestamp())


def write_csv(path: Path, header: str, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


# --- TaobaoAd ------------------------------------------------------------------------------------

SAMPLE_COLUMNS = "user,time_stamp,adgroup_id,pid,nonclk,clk"
# The blank after the last name is in the public file.
PROFILE_COLUMNS = (
    "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,"
    "occupation,new_user_class_level "
)


def write_taobao_ad(raw: Path) -> None:
    samples = []
    for day in range(6, 14):
        at_s = seconds(2017, 5, day, 9, SHANGHAI)
        for user in (581738, 449818, 7):
            for place, ad in enumerate((1, 2, 63133)):
                click = int((user + ad + day) % 3 == 0)
                pid = "430548_1007" if place else "430539_1007"
                samples.append((user, at_s + place // 2, ad, pid, 1 - click, click))
    write_csv(raw / "raw_sample.csv", SAMPLE_COLUMNS, samples)
    ads = [
        (63133, 6406, 83237, 1, 95471, 170.0),
        (1, 9025, 1, 1, "NULL", 99999999.0),
        (2, 6406, 2, 2, 95471, 19.9),
    ]
    write_csv(raw / "ad_feature.csv", "adgroup_id,cate_id,campaign_id,customer,brand,price", ads)
    profiles = [(581738, 0, 5, 2, 5, None, 3, 0, 3), (449818, 1, 8, 1, 3, 2, 1, 0, None)]
    write_csv(raw / "user_profile.csv", PROFILE_COLUMNS, profiles)
    behaviours = [
        (581738, seconds(2017, 4, 22, 0, SHANGHAI), "pv", 6250, 91286),
        (581738, seconds(2017, 5, 7, 3, SHANGHAI), "cart", 6406, 95471),
        (449818, seconds(2017, 5, 13, 23, SHANGHAI), "buy", 9025, 95471),
        (449818, seconds(2017, 4, 21, 23, SHANGHAI), "fav", 9025, 95471),
        (7, -1_400_000_000, "pv", 1, 1),
    ]
    write_csv(raw / "behavior_log.csv", "user,time_stamp,btag,cate,brand", behaviours)


# --- KuaiRand ------------------------------------------------------------------------------------

LOG_COLUMNS = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
    "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
    "is_profile_enter,is_rand,tab"
)
USER_COLUMNS = (
    "user_id,user_active_degree,is_lowactive_period,is_live_streamer,is_video_author,"
    "follow_user_num,follow_user_num_range,fans_user_num,fans_user_num_range,friend_user_num,"
    "friend_user_num_range,register_days,register_days_range,"
) + ",".join(f"onehot_feat{place}" for place in range(18))
VIDEO_COLUMNS = (
    "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,"
    "server_width,server_height,music_id,music_type,tag"
)


def _watched(user: int, video: int, day: datetime, *, is_rand: int) -> tuple[object, ...]:
    click = (user + video + day.day) % 2
    at_ms = int(day.timestamp()) * 1000 + 301 + video
    date, play_ms = day.strftime("%Y%m%d"), 8000 * click
    feedback = (click, 0, 0, 0, 0, 0, click, play_ms, 104400, 0, 0, 0)
    return (user, video, date, 400, at_ms, *feedback, is_rand, (user + video) % 15)


def write_kuairand(raw: Path) -> None:
    first = datetime(2022, 4, 8, 12, tzinfo=SHANGHAI)
    days = [first + timedelta(days=place) for place in range(31)]
    standard = [_watched(u, v, day, is_rand=0) for day in days for u in (0, 1) for v in (10, 20)]
    drawn = [_watched(1, 30, day, is_rand=1) for day in days[14:]]
    folder = raw / "KuaiRand-Pure" / "data"
    write_csv(folder / "log_standard_4_08_to_4_21_pure.csv", LOG_COLUMNS, standard[:56])
    write_csv(folder / "log_standard_4_22_to_5_08_pure.csv", LOG_COLUMNS, standard[56:])
    write_csv(folder / "log_random_4_22_to_5_08_pure.csv", LOG_COLUMNS, drawn)
    user = ("full_active", 0, 0, 1, 5, '"(0,10]"', 312, '"[100,1k)"', 0, 0, 3624, "730+")
    users = [(id_, *user, *(1 for _ in range(16)), None, 0) for id_ in (0, 1)]
    write_csv(folder / "user_features_pure.csv", USER_COLUMNS, users)
    videos = [
        (
            10,
            441,
            "NORMAL",
            "2020-07-08",
            "ShortImport",
            1,
            17200.0,
            720,
            1280,
            989,
            4.0,
            '"12,65"',
        ),
        (20, 441, "AD", "2020-07-09", "Web", 1, None, 720, 1280, None, None, 5),
        (30, 9, "NORMAL", "2020-07-09", "Web", 1, 9000.0, 720, 1280, 7, 9.0, None),
    ]
    write_csv(folder / "video_features_basic_pure.csv", VIDEO_COLUMNS, videos)


# --- KuaiVideo -----------------------------------------------------------------------------------

KUAIVIDEO_COLUMNS = "timestamp,user_id,item_id,is_click,is_like,is_follow,pos_items,neg_items"


def write_kuaivideo(raw: Path) -> None:
    rows = [
        (0.5 * (place // 2), place % 2, 3_239_000 + place % 7, int(place % 3 == 0), 0, 0, "5^6", "")
        for place in range(60)
    ]
    write_csv(raw / "train.csv", KUAIVIDEO_COLUMNS, rows[:40])
    # The published split is by user, so the times of both files overlap.
    later = [(row[0] - 5, *row[1:]) for row in rows[40:]]
    write_csv(raw / "test.csv", KUAIVIDEO_COLUMNS, later)


# --- Amazon Electronics --------------------------------------------------------------------------

AMAZON_COLUMNS = "label,user_id,item_id,cate_id,item_history,cate_history"
CATEGORY_OF = {item: 700 + item % 3 for item in range(40)}
REVIEWED = {0: [4, 9, 2, 7, 5], 3: [1, 2, 3, 4, 5, 6, 8], 192402: [39, 38, 4, 9, 30, 31]}


def _reviews(user: int, length: int) -> list[tuple[object, ...]]:
    history = REVIEWED[user][:length]
    items = "^".join(map(str, history))
    categories = "^".join(str(CATEGORY_OF[item]) for item in history)
    shown = ((1, REVIEWED[user][length]), (0, 10 + length))
    return [(y, user, item, CATEGORY_OF[item], items, categories) for y, item in shown]


def write_amazon_electronics(raw: Path) -> None:
    train = [
        row
        for user, items in REVIEWED.items()
        for length in range(len(items) - 2, 0, -1)
        for row in _reviews(user, length)
    ]
    test = [row for user, items in REVIEWED.items() for row in _reviews(user, len(items) - 1)]
    write_csv(raw / "train.csv", AMAZON_COLUMNS, train)
    write_csv(raw / "test.csv", AMAZON_COLUMNS, test)


# --- Criteo --------------------------------------------------------------------------------------


def write_criteo(raw: Path) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in range(40):
        counts = ["" if place == 0 else str(row + place - 4) for place in range(13)]
        categories = ["" if place == 25 else f"{row % 2:08x}" for place in range(26)]
        lines.append("\t".join([str(int(row % 4 == 0)), *counts, *categories]))
    (raw / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- Avazu ---------------------------------------------------------------------------------------

AVAZU_COLUMNS = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,"
    "C14,C15,C16,C17,C18,C19,C20,C21"
)


def write_avazu(raw: Path) -> None:
    rows = []
    for day in range(21, 31):
        for place, ip in enumerate(("ddd2926e", "96809ac8", "b3cf8def")):
            place_ids = ("1fbe01fe", "f3845767", "28905ebd", "ecad2386", "7801e8d9", "07d7df22")
            device = ("a99f214a", ip, "44956a24", 1, 2)
            ad = (15706 + place, 320, 50, 1722, 0, 35, -1, 79)
            # Ids of the public file are larger than int64.
            id_, click = 10_000_371_904_215_119_486 + len(rows), (day + place) % 2
            hour = f"1410{day}{3 * place:02}"
            rows.append((id_, click, hour, 1005, place, *place_ids, *device, *ad))
    write_csv(raw / "train.csv", AVAZU_COLUMNS, rows)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "taobao-ad": write_taobao_ad,
    "kuairand": write_kuairand,
    "kuaivideo": write_kuaivideo,
    "amazon-electronics": write_amazon_electronics,
    "criteo": write_criteo,
    "avazu": write_avazu,
}
