"""Other architectures over the same inputs and outputs, to compare Kunlun with."""
