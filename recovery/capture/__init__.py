"""A metadata store into a catalog, read live or in columns; and a catalog as a store."""
