"""Sentences and next commands that several commands share."""
