"""The foundation model: data, Kunlun, training, baselines, and what it passes on."""
