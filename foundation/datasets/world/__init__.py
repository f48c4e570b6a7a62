"""World-1: a synthetic ads world in which the right answer to every question is known.

Read in this order: `config` (every dial), `randomness`, `clock`, `latent`, `bands` (the planted
memory), `catalogue`, `organic` (what users do), `exposure` (what they are shown), `outcomes` (the
click formula), `conversions`, `ticks` (one piece of the log, and the whole), `oracle`, `sinks`.

One piece is a tick of time and a block of users. It is a pure function of the configuration, the
tick and the block: any of them can be made alone, on any machine, in any order.
"""
