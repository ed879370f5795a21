"""Report pages: one HTML file for a plan or for an inventory, with a picture first."""
