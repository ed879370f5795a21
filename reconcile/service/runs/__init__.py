"""The runs of the elected instance: the schedule, the record in the store, commands in processes of their own."""
