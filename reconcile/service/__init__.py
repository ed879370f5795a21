"""The service: jobs by a schedule, run by one elected instance, and an API to ask it."""
