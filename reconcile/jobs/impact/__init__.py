"""May these bookies be taken away? The check as a job: a store's records at hand, and what becomes of them."""
