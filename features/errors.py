"""What can go wrong with a user's data, a stored value or the store.

GemcutterError
|- SchemaError        (also ValueError)  a schema document says something it may not
|- DataError          (also ValueError)  a table, column or value is not what the schema says
|- CodecError         (also ValueError)  a vector cannot be packed as asked
`- StoreError                            the store did not do what was asked
   |- StoreTimeout                       it did not answer in time
   `- StoreUnavailable                   it cannot be reached, or refuses writes
"""


class GemcutterError(Exception):
    """Anything this project raises on purpose."""


class SchemaError(GemcutterError, ValueError):
    """A schema document says something it may not."""


class DataError(GemcutterError, ValueError):
    """A table, column or value is not what the schema says."""


class CodecError(GemcutterError, ValueError):
    """A vector cannot be packed as asked."""


class StoreError(GemcutterError):
    """The store did not do what was asked."""


class StoreTimeout(StoreError):  # noqa: N818 (named for what happened)
    """The store did not answer in time."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store cannot be reached, or refuses writes."""
