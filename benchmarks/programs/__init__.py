"""Stages and floors as programs of their own."""
