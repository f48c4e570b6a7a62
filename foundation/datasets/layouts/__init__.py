"""Public data sets that cannot be shipped, read from a user's own copy of their files.

One folder a layout, with the `schema.yaml` of the log that is made and the little code that makes
it. Each schema begins with what the files do not say and what stands in for it.
"""

from foundation.datasets.layouts.amazon_electronics.convert import LAYOUT as _AMAZON_ELECTRONICS
from foundation.datasets.layouts.avazu.convert import LAYOUT as _AVAZU
from foundation.datasets.layouts.criteo.convert import LAYOUT as _CRITEO
from foundation.datasets.layouts.kuairand.convert import LAYOUT as _KUAIRAND
from foundation.datasets.layouts.kuaivideo.convert import LAYOUT as _KUAIVIDEO
from foundation.datasets.layouts.layout import ConversionReport, Layout, convert
from foundation.datasets.layouts.taobao_ad.convert import LAYOUT as _TAOBAO_AD

LAYOUTS = {
    layout.name: layout
    for layout in (_TAOBAO_AD, _KUAIRAND, _KUAIVIDEO, _AMAZON_ELECTRONICS, _CRITEO, _AVAZU)
}

__all__ = ["LAYOUTS", "ConversionReport", "Layout", "convert"]
