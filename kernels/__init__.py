"""The operators that the foundation model spends its time in, each with its definition.

Every operator takes jagged values and offsets. `reference.py` of a folder is the definition, in
plain PyTorch. Nothing here knows of events, users or models.
"""
