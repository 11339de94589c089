"""Bodies and answers as the clients of OpenAI's API write and read them. Pure."""
