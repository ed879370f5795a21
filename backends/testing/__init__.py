"""The promises of the store protocols, as tests that adapters subclass."""
