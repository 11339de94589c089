"""The reference of every route, OpenAPI 3.1: made of the routes themselves and the types of their codecs."""
