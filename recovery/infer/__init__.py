"""Facts of many bookies into the metadata that explains them: Arrow in, Arrow out."""
