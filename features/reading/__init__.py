"""From the files of a log to sorted, encoded columns that map into memory."""
