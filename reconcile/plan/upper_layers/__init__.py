"""Nodes of upper layers in a plan that people change."""
