"""Who may use the server, and how much: API keys and the console's users, in one table."""
