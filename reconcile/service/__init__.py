"""The service: scheduled jobs that one elected instance runs, and an API."""
