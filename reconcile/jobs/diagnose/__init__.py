"""What only looks: at a store in danger, at one ledger, at journals, at single files, at this installation."""
