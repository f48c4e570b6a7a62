"""Server-side scripts, as the text the server runs.

They are the only code that compares event times where writes meet. Lua numbers are doubles, which
hold Unix ms exactly for the next 280,000 years. Bytes that are not a packed vector of this layout
count as older than anything: they can hold nothing that is worth keeping.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from features.packed import LAYOUT_VERSION, MAGIC, NEWEST_AT_OFFSET


@dataclass(frozen=True)
class Script:
    """Lua source and the name the server caches it under."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


_NEWEST_AT = f"""
local function newest_at(value)
  if not value or #value < {NEWEST_AT_OFFSET + 8} then return nil end
  if string.sub(value, 1, 5) ~= '{MAGIC.decode()}\\{LAYOUT_VERSION}' then return nil end
  return (struct.unpack('<i8', value, {NEWEST_AT_OFFSET + 1}))
end
local function is_older(held, value)
  local held_at, at = newest_at(held), newest_at(value)
  return held_at ~= nil and (at == nil or at < held_at)
end
"""

# KEYS: key. ARGV: 1 if something is expected, expected, value, ttl in ms or 0.
SWAP = Script("""
local held = redis.call('GET', KEYS[1])
if held ~= ARGV[3] then
  if held and (ARGV[1] == '0' or held ~= ARGV[2]) then return 0 end
  if not held and ARGV[1] == '1' then return 0 end
end
if ARGV[4] == '0' then redis.call('SET', KEYS[1], ARGV[3])
else redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]) end
return 1
""")

# KEYS: key. ARGV: ttl in ms or 0, value.
PUT_NEWEST = Script(
    _NEWEST_AT
    + """
if is_older(redis.call('GET', KEYS[1]), ARGV[2]) then return 0 end
if ARGV[1] == '0' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1]) end
return 1
"""
)

# KEYS: hash. ARGV: ttl in ms or 0, then field and value of each write, in order.
PUT_NEWEST_FIELDS = Script(
    _NEWEST_AT
    + """
local written, any = {}, false
for i = 2, #ARGV, 2 do
  if is_older(redis.call('HGET', KEYS[1], ARGV[i]), ARGV[i + 1]) then
    written[i / 2] = 0
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    written[i / 2], any = 1, true
  end
end
if any and ARGV[1] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return written
"""
)

# KEYS: hash. ARGV: how many fields stay.
TRIM_NEWEST = Script(
    _NEWEST_AT
    + """
local most = tonumber(ARGV[1])
if redis.call('HLEN', KEYS[1]) <= most then return 0 end
local flat, entries = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #flat, 2 do
  entries[#entries + 1] = {flat[i], newest_at(flat[i + 1]) or -math.huge}
end
table.sort(entries, function(a, b)
  if a[2] ~= b[2] then return a[2] > b[2] end
  return a[1] > b[1]
end)
for i = most + 1, #entries do redis.call('HDEL', KEYS[1], entries[i][1]) end
return #entries - most
"""
)

ALL = (SWAP, PUT_NEWEST, PUT_NEWEST_FIELDS, TRIM_NEWEST)
