"""The demo: a real pipeline over a real server, with fictional data that is drawn or shipped here."""
