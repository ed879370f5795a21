"""What the elected instance runs: the schedule, the record in the store, commands in processes of their own."""
