"""Preflight: may bookies delete data right now?"""
