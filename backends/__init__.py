"""Stores of keys and bytes; nothing here knows what the bytes mean."""
