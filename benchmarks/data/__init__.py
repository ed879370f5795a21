"""What stages are run on: made-up ledgers, in every form that a stage takes."""
