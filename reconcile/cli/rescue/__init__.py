"""`rescue`: the runbook as one command that is stopped and gone on with; each step runs the command that it prints."""
