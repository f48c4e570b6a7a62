"""World-1: a synthetic ads world in which the right answer to every question is known.

Read in this order: `config` (every dial), `randomness`, `clock`, `latent`, `bands` (the planted
memory), `catalogue`, `timeline`, `organic` (what users do), `exposure` (what they are shown),
`outcomes` (the click formula), `conversions`, `ticks` (one piece of the log, and the whole),
`stream`, `oracle`, `sinks`.

One piece is a tick of time and a block of users. It is a pure function of the configuration, the
tick and the block: any of them can be made alone, in any order, by any process.

    world = World(WorldConfig(rho=0.5, horizon=2048))
    for piece in world.pieces():            # in this process: arrays by table and column
        piece.tables["impressions"]["click"], piece.oracle["p_click"]
    write_parquet(world, folder, tell=...)  # a log folder, with its oracle beside it
    for tables in stream(world, blocks):    # tick by tick, in the order of knowing

`precompute.worldstream` sends the stream to Kafka; `gemcutter world` does all of it.

What the log does not have: sessions, a drift of slow taste, conversions shared by several clicks.
"""
